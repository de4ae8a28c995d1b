#!/bin/sh
# Run once by the image of PostgreSQL: a role that sees the rows of one tenant at a time, and its database.
set -eu
psql --set ON_ERROR_STOP=1 --set "password=$POSTGRES_PASSWORD" --username postgres <<'END'
CREATE ROLE rkllm LOGIN PASSWORD :'password';
CREATE DATABASE rkllm OWNER rkllm;
END
