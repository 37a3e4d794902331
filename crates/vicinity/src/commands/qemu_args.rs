//! `vicinity qemu-args`: prints the QEMU options of one NIC on a network.

use std::path::Path;

use super::guest_memory::GuestMemory;
use super::nic::{Nic, RING};
use super::qemu_version::{RECONNECT_MS, Version};
use crate::commands::output::as_json;
use crate::config::Mode;

/// Returns QEMU's options for a NIC as pairs of option and value. `size` and `memory` are the size and
/// the kind of the VM's memory. `qemu` is the version of QEMU that will use the options, if known.
pub(crate) fn options(
    nic: &Nic,
    size: &str,
    memory: &GuestMemory,
    qemu: Option<Version>,
) -> Vec<(&'static str, String)> {
    let id = format!("vicinity-{}", nic.network);
    let path = value(&nic.socket);
    let socket = match nic.mode {
        Mode::Client => "server=on,wait=off",
        Mode::Server if qemu.is_some_and(|version| version < RECONNECT_MS) => "reconnect=1",
        Mode::Server => "reconnect-ms=100",
    };
    let (mac, queues) = (nic.mac, nic.queues);
    let (netdev, device) = match queues {
        0 | 1 => (String::new(), String::new()),
        // QEMU's own rule: one vector for each ring, one for configuration changes, one for the
        // control queue.
        _ => (
            format!(",queues={queues}"),
            format!(",mq=on,vectors={}", 2 * queues + 2),
        ),
    };
    vec![
        ("-m", size.to_owned()),
        (
            "-object",
            format!(
                "memory-backend-memfd,id=vicinity-memory,size={size},share=on{}",
                memory.properties()
            ),
        ),
        ("-machine", "memory-backend=vicinity-memory".to_owned()),
        ("-chardev", format!("socket,id={id},path={path},{socket}")),
        (
            "-netdev",
            format!("vhost-user,id={id},chardev={id}{netdev}"),
        ),
        (
            "-device",
            format!(
                "virtio-net-pci,netdev={id},mac={mac},rx_queue_size={RING},tx_queue_size={RING}{device}"
            ),
        ),
    ]
}

/// Returns a path as the value of a QEMU sub-option, with commas doubled, because a single comma
/// ends the value.
pub(crate) fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Returns the options as words of a command line.
pub(crate) fn words<'a>(options: &'a [(&'static str, String)]) -> Vec<&'a str> {
    let words = options
        .iter()
        .map(|(option, value)| [*option, value.as_str()]);
    words.flatten().collect()
}

/// Returns the options of a device that is added to a VM: one option a line, as shell words, or a JSON array of the
/// words of a command line.
pub(crate) fn lines(options: &[(&'static str, String)], json: bool) -> String {
    if json {
        return as_json(&words(options));
    }
    let line = |(option, value): &(_, String)| format!("{option} {}\n", quoted(value));
    options.iter().map(line).collect()
}

/// Returns the options as shell words: one option a line, with backslashes at the line ends, or all
/// on one line.
pub(crate) fn render(options: &[(&'static str, String)], one_line: bool) -> String {
    let separator = if one_line { " " } else { " \\\n" };
    let words: Vec<String> = options
        .iter()
        .map(|(option, value)| format!("{option} {}", quoted(value)))
        .collect();
    words.join(separator) + "\n"
}

/// Returns a word in the form that a shell reads as this word. A plain word has no quotes, so that an unquoted
/// `$(vicinity qemu-args VM --one-line)` gives the same words.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./,:=@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    // Only a text with a zero byte has no quoted form, and no path contains a zero byte.
    shlex::try_quote(word).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::nic::find;
    use crate::commands::nic::tests::config;

    fn text(nic: &Nic, version: Option<Version>) -> String {
        render(&options(nic, "1G", &GuestMemory::default(), version), true)
    }

    #[test]
    fn more_than_one_queue_pair() {
        let nic = Nic {
            queues: 4,
            ..find(&config(), "new", None).unwrap()
        };
        let text = render(&options(&nic, "1G", &GuestMemory::default(), None), true);
        assert!(text.contains("chardev=vicinity-green,queues=4"), "{text}");
        assert!(text.contains(",mq=on,vectors=10"), "{text}");
    }

    #[test]
    fn only_words_that_a_shell_would_change_have_quotes() {
        let plain = find(&config(), "new", None).unwrap();
        let text = text(&plain, None);
        let split: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        assert_eq!(shlex::split(&text).unwrap(), split);
        for word in ["a b", "$HOME/x", "~/x y", "a{b,c}", "*", ""] {
            let read = shlex::split(&quoted(word)).unwrap();
            assert_eq!(read, [word]);
            assert!(quoted(word).starts_with(['\'', '"']), "{word}");
        }
    }

    #[test]
    fn the_kind_of_memory_is_that_of_its_object() {
        let nic = find(&config(), "new", None).unwrap();
        let memory = crate::commands::guest_memory::tests::options(&["--hugetlb", "--prealloc"]);
        let text = render(&options(&nic, "1G", &memory, None), true);
        let object = "size=1G,share=on,hugetlb=on,prealloc=on";
        assert!(text.contains(object), "{text}");
    }

    #[test]
    fn a_listed_port_in_server_mode() {
        let nic = find(&config(), "web", Some("blue")).unwrap();
        let expected = "-m 1G \
            -object 'memory-backend-memfd,id=vicinity-memory,size=1G,share=on' \
            -machine 'memory-backend=vicinity-memory' \
            -chardev 'socket,id=vicinity-blue,path=/srv/my vms/web,,1.sock,reconnect-ms=100' \
            -netdev 'vhost-user,id=vicinity-blue,chardev=vicinity-blue' \
            -device 'virtio-net-pci,netdev=vicinity-blue,mac=52:54:00:00:00:01,\
            rx_queue_size=1024,tx_queue_size=1024'\n";
        let plain = |text: &str| text.replace('\'', "");
        assert_eq!(plain(&text(&nic, None)), plain(expected));
        let words = shlex::split(&text(&nic, None)).unwrap();
        assert!(
            words
                .iter()
                .any(|word| word.contains("path=/srv/my vms/web,,1.sock,"))
        );
    }

    #[test]
    fn the_reconnect_option_follows_the_version() {
        let nic = find(&config(), "web", Some("blue")).unwrap();
        assert!(text(&nic, Some(Version(8, 2))).contains(",reconnect=1"));
        assert!(text(&nic, Some(Version(9, 2))).contains(",reconnect-ms=100"));
        assert!(text(&nic, Some(Version(10, 0))).contains(",reconnect-ms=100"));
    }

    #[test]
    fn an_accepted_port_listens_in_the_networks_folder() {
        let nic = find(&config(), "new", None).unwrap();
        assert_eq!(nic.socket, Path::new("/run/vicinity/green/new.sock"));
        assert!(text(&nic, None).contains("new.sock,server=on,wait=off"));
    }

    #[test]
    fn options_of_a_device_are_words_for_a_shell_and_in_json() {
        let options = [
            ("-chardev", "socket,id=a,path=/a b,,c".to_owned()),
            ("-device", "pci,chardev=a".to_owned()),
        ];
        let text = lines(&options, false);
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("\n-device pci,chardev=a\n"), "{text}");
        assert_eq!(shlex::split(&text).unwrap(), words(&options));
        let array: Vec<String> = serde_json::from_str(&lines(&options, true)).unwrap();
        assert_eq!(array, words(&options));
    }

    #[test]
    fn one_option_a_line_is_one_command() {
        let nic = find(&config(), "new", None).unwrap();
        let options = options(&nic, "512M", &GuestMemory::default(), None);
        let lines = render(&options, false);
        assert_eq!(lines.lines().count(), 6);
        let joined = lines.replace("\\\n", "");
        assert_eq!(shlex::split(&joined), shlex::split(&render(&options, true)));
    }
}
