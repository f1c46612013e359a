//! `include/gradwire.h` is what cbindgen makes of `src/lib.rs`.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let source = folder.join("src/lib.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let path = folder.join("include/gradwire.h");
    if std::env::var_os("GRADWIRE_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let (made, there) = (String::from_utf8(made).unwrap(), fs::read_to_string(&path).unwrap());
    // Functions without a declaration would be in neither.
    let functions = fs::read_to_string(folder.join("src/lib.rs")).unwrap().matches("no_mangle").count();
    assert_eq!(made.lines().filter(|line| line.ends_with(");")).count(), functions);
    assert_eq!(there, made, "write it: GRADWIRE_WRITE_HEADER=1 cargo test -p gradwire-c");
}
