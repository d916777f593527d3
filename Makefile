# Every target is a `cargo xtask` command; `cargo xtask help` lists them all.
.PHONY: demo up down test soak bench bench-api lint setup

demo up down test soak bench bench-api lint setup:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.94 or later with rustup"; exit 1; }
	@cargo xtask $@
