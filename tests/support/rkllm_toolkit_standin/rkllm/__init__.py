"""Stands in for Rockchip's rkllm-toolkit in tests."""
