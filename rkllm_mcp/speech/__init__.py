"""Speech: a recording becomes text, and text becomes sound, by the programs that the owner configured."""
