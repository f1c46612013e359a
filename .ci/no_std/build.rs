//! Nothing may stay undefined but what the C library gives to any `no_std` program: memcpy and its
//! like.

fn main() {
    for argument in ["-nostartfiles", "-lc", "-Wl,-z,defs"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
