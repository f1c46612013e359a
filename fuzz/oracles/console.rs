//! Verifies the soft core's console: what the terminal shows is the line that is read, and a line
//! does what its words say.

use gradwire_testbench::oracle::settings::{is_rule, number};
use softcore::console::command::{self, Command, Problem};
use softcore::console::editor::{Echo, Editor, LINE};

/// Any bytes as what is typed.
///
/// # Panics
/// The terminal shows another line than the one that is read, or a line is read as something else
/// than it says.
pub(crate) fn verify(data: &[u8]) {
    let mut editor = Editor::new();
    let mut shown = String::new();
    for byte in data {
        match editor.byte(*byte) {
            Echo::Nothing | Echo::Bell => {}
            Echo::Character(character) => {
                assert_eq!(character, *byte);
                assert!(matches!(character, b' '..=b'~'), "{character:#04x}");
                shown.push(char::from(character));
            }
            Echo::Erase => assert!(shown.pop().is_some()),
            Echo::EraseAll(len) => {
                assert_eq!(len, shown.len());
                shown.clear();
            }
            Echo::Cancel => shown.clear(),
            Echo::Enter => {
                assert_eq!(editor.line(), shown);
                line(&shown);
                shown.clear();
            }
        }
        assert!(shown.len() <= LINE);
    }
    // Also what no terminal sends.
    if let Ok(text) = str::from_utf8(data) {
        line(text);
    }
}

fn line(text: &str) {
    match command::parse(text) {
        Ok(command) => says(&text.split_ascii_whitespace().collect::<Vec<_>>(), command),
        Err(problem) => {
            assert!(!problem.to_string().is_empty());
            match problem {
                Problem::Unknown(word) => assert_eq!(text.split_ascii_whitespace().next(), Some(word)),
                Problem::Setting(part)
                | Problem::Twice(part)
                | Problem::Value(part, _)
                | Problem::Excess(part) => {
                    assert!(text.contains(part), "{part:?} is not in {text:?}");
                }
                Problem::Missing(_) | Problem::Params(_) | Problem::Bound(_) => {}
            }
        }
    }
}

/// The words of a line that was taken are those of `command`.
fn says(words: &[&str], command: Command) {
    match command {
        Command::Nothing => assert!(words.is_empty()),
        Command::Help => assert!(matches!(words, ["help" | "?"])),
        Command::Rules => assert_eq!(words, ["rules"]),
        Command::Counters => assert_eq!(words, ["counters"]),
        Command::Flows => assert_eq!(words, ["flows"]),
        Command::Reset => assert_eq!(words, ["reset"]),
        Command::Reboot => assert_eq!(words, ["reboot"]),
        Command::Logs(on) => assert_eq!(words, ["logs", if on { "on" } else { "off" }]),
        Command::DefaultRules => assert_eq!(words, ["rule", "default"]),
        Command::RemoveRule(index) => {
            assert!(words.len() == 3 && words[..2] == ["rule", "remove"]);
            assert_eq!(words[2].parse(), Ok(index as u128));
        }
        Command::Mark(mark) => {
            assert!(words.len() == 2 && words[0] == "mark");
            assert_eq!(number(words[1]), i64::from(mark));
        }
        Command::AddRule(rule) => {
            assert_eq!(words[..2], ["rule", "add"]);
            is_rule(&rule, (1, "off"), |name| {
                let mut settings =
                    words[2..].iter().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
                let setting = settings.next().map(str::to_owned);
                assert_eq!(settings.next(), None, "a second {name} was ignored");
                setting
            });
        }
    }
}
