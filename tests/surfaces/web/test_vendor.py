"""The vendored libraries are what npm has, and do what the page takes from them."""

from __future__ import annotations

import hashlib
import json
import subprocess

from rkllm_mcp.surfaces.http.page import FOLDER
from tests.surfaces.web.test_scripts import node

VENDOR = FOLDER / "js" / "vendor"
MODULE_LINE = b"\nexport default temml;\n"
PUBLISHED = {
    "highlight/core.min.js": "67a339aa68880a40c9803def9c8cebb2225dec76230382db86e349370dee70e9",
    "highlight/languages/bash.min.js": "7db1758fe6f04cd410760c29879812a3774edc54edcc91323511a24efc0b9e61",
    "highlight/languages/c.min.js": "edada72825cceb7dec51cc785efcc3e6378970917e11e4c7dfab29d0079e08a5",
    "highlight/languages/cpp.min.js": "aa67eeacdbbda9f40ca34c59147581aef1601f19b71a55966de4ccf4246e8c31",
    "highlight/languages/css.min.js": "2f4264d9a07a4f5446e51e2d93b0c0e031b4fd910e8e44984cd17f996a990b99",
    "highlight/languages/diff.min.js": "cbd7cf3b49bee36d6a0cf97789a7c5e68fbfd4231e86a81966f9b78c7bc127d0",
    "highlight/languages/dockerfile.min.js": "5a83ccd455a2910e9018f591fc1d2856ff5151ffa9889fc000542e16b329b039",
    "highlight/languages/go.min.js": "05658f281f7f12233cd891e879c8b9ebfd5998f5dc3f1e80632889ce61178534",
    "highlight/languages/ini.min.js": "b2330623daa8da0c4ef98891b97f393daa2e809721842c312f217e0339e255db",
    "highlight/languages/java.min.js": "7987da1c2dcc1d83f7a5a670cdc622fdac834cb1c140ad503bf8d7ea9237ac36",
    "highlight/languages/javascript.min.js": "c3dbd515a79e2c00ff4535aa5ad2fe539fb2587d047f9ab826107d0784da7bb6",
    "highlight/languages/json.min.js": "8f2343ffbcc4fdea4b336a4241d54d223d52f99b67729d2d6d3556bbf66908ae",
    "highlight/languages/markdown.min.js": "73cb474b4687421a0949ded1ba8314ec74c26058688dc7f6154084240352cc79",
    "highlight/languages/python.min.js": "fd5d479dcc9d07b957cf07b1df76d3d8fb6ee6f6d1437238d9530a9be724c046",
    "highlight/languages/rust.min.js": "fde151d2b246bef44c98da80e7cac3cbb05de794911305fe9a3adf6beff87659",
    "highlight/languages/sql.min.js": "79bead5cf2bfa93d3982073d000a97802f394fe287736644bab30f40cb5c7380",
    "highlight/languages/typescript.min.js": "0e10ce9a81d42f8d43a54007ca7e31fe22ad801b2a2e1693d31736aa79fa5404",
    "highlight/languages/xml.min.js": "2e8c8ba1e7a200cd83dfbf9c746b8e00f7d7bad966dbfd83eca142cf2caa4dd7",
    "highlight/languages/yaml.min.js": "7010955f1f87aef1de085483d79d42817544aaf03c4f57a6fd4eb838f2cdf609",
    "temml/temml.js": "1ab19148afe0dbc836b7a74f344071b3f3a70a7a8259ae4049e76894fcdf8d95",
}


def test_a_vendored_file_is_as_it_was_published_and_has_its_licence() -> None:
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes().removesuffix(MODULE_LINE)).hexdigest()
        for path in VENDOR.rglob("*.js")
    }
    assert found == PUBLISHED
    assert "BSD 3-Clause" in (VENDOR / "highlight" / "LICENSE").read_text("utf-8")
    assert "MIT License" in (VENDOR / "temml" / "LICENSE").read_text("utf-8")


def test_the_tree_of_tokens_that_the_page_reads_is_there() -> None:
    script = """
        const { default: highlight } = await import("./highlight/core.min.js");
        const grammar = await import("./highlight/languages/python.min.js");
        highlight.registerLanguage("python", grammar.default);
        const { root } = highlight.highlight("x = 'a'  # b", { language: "python" })._emitter;
        console.log(JSON.stringify(root.children));
    """
    command = [node(), "--input-type=module", "-e", script]
    done = subprocess.run(command, cwd=VENDOR, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [
        "x = ",
        {"children": ["'a'"], "scope": "string"},
        "  ",
        {"children": ["# b"], "scope": "comment"},
    ]
