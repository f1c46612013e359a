//! Texts of errors.

/// The text of an error; its figures are those of any input.
///
/// # Panics
/// It says nothing, or more than a line.
pub(super) fn printed(error: &impl std::error::Error) -> String {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
    text
}
