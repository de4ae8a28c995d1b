"""The machine: its SoC, NPU driver, memory and temperature."""
