//! Sizes of the soft core's images, against `firmware/softcore/sizes.csv`.

use std::fs;
use std::path::PathBuf;

use object::{Object, ObjectSection};

use crate::Result;
use crate::table::{Row, Table, Tolerance};
use crate::tools::root;

const TABLE: &str = "firmware/softcore/sizes.csv";
const HEAD: &str = "\
# Bytes of the images for qemu-virt; text with constants. Compared by firmware/softcore/proofs with a tolerance
# of 10%; written anew by firmware/softcore/test --refresh
image,section,bytes
";
/// A tenth; a few bytes more or less of a small section are no change.
const TOLERANCE: Tolerance = Tolerance { part: 0.1, least: 16.0 };
const GROUPS: [(&str, &[&str]); 3] =
    [("text", &[".text", ".init.rust", ".rodata"]), ("data", &[".data"]), ("bss", &[".bss", ".uninit"])];

/// Compares the sizes of `images` with the committed table, or writes them there.
///
/// # Errors
/// A size is off; an image cannot be read, or has no code.
pub fn sizes(images: &[PathBuf], refresh: bool) -> Result {
    let mut sizes = Vec::new();
    for image in images {
        let bytes = fs::read(image).map_err(|error| format!("{}: {error}", image.display()))?;
        let file = object::File::parse(&*bytes)?;
        let sections =
            file.sections().map(|section| (section.name().unwrap_or_default().to_owned(), section.size()));
        let name = image.file_name().unwrap_or_default().display();
        let of_image = grouped(sections)?;
        sizes.extend(of_image.into_iter().map(|(group, size)| (format!("{name},{group}"), size)));
    }
    let path = root().join(TABLE);
    let table = Table {
        path: &path,
        head: HEAD,
        digits: 0,
        tolerance: TOLERANCE,
        refresh: "firmware/softcore/test --refresh",
    };
    if refresh {
        table.write(&sizes)?;
    }
    table.compare(&sizes)?;
    let sizes: Vec<_> = sizes.iter().map(|(group, size)| format!("{group} {size}")).collect();
    println!("softcore: sizes {}", sizes.join(", "));
    Ok(())
}

fn grouped(sections: impl Iterator<Item = (String, u64)>) -> Result<Vec<Row>> {
    let sections: Vec<_> = sections.collect();
    let sum = |names: &[&str]| -> u64 {
        sections.iter().filter(|(name, _)| names.contains(&&**name)).map(|(_, size)| size).sum()
    };
    let groups: Vec<Row> =
        GROUPS.iter().map(|(group, names)| ((*group).to_owned(), sum(names) as f64)).collect();
    if groups[0].1 == 0.0 {
        return Err("the image has no code: are its sections called otherwise?".into());
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_added_up_by_group() {
        let sections = [(".text", 10), (".rodata", 5), (".debug_info", 99), (".uninit", 7), (".bss", 1)];
        let groups = grouped(sections.map(|(name, size)| (name.to_owned(), size)).into_iter()).unwrap();
        assert_eq!(
            groups,
            [("text", 15.0), ("data", 0.0), ("bss", 8.0)].map(|(group, size)| (group.to_owned(), size))
        );
    }

    #[test]
    fn an_image_without_code_is_refused() {
        assert!(grouped([(".data".to_owned(), 4)].into_iter()).is_err());
    }
}
