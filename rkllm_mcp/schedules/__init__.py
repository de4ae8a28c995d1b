"""Schedules without IO: rules of time, their words, and the sentences of people that hold one."""
