//! `gradwire.h`: INCEPTIONN's pair of calls, for C, C++ and MPI programs.
//!
//! This file is the border: it turns C's pointers into Rust's references, and lets no panic out.
//! `link.rs` does the rest. cbindgen makes `include/gradwire.h` of it, comments included, which a
//! test compares.

#![expect(unsafe_code, reason = "C passes pointers, and finds functions by their names")]
// cbindgen copies comments into the header, where a heading and an intra-doc link are noise. What a
// caller must do is in the words of each function, and at the head of `Link` for all.
#![expect(clippy::missing_safety_doc, reason = "the comments are also the header's")]

mod link;

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::link::{Channel, Error};

/// What became of a call. gradwire_last_error() says it in words.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// An argument is wrong. Nothing was exchanged, and the link is as before. The other ranks
    /// wait for this one, until their timeout.
    Invalid = 1,
    /// Ranks did not connect, or an exchange failed somewhere. The link is of no more use but to
    /// gradwire_close(). Values hold parts of sums: start again from a checkpoint.
    Failed = 2,
    /// A bug of gradwire. As GRADWIRE_STATUS_FAILED.
    Bug = 3,
}

/// A rank's connections to all others.
///
/// Pointers to links are what gradwire_open() or gradwire_listen() returned, and gradwire_close()
/// has not had. Texts end with a zero byte, and are UTF-8. Arguments do not overlap, and nobody
/// else touches their memory during a call. Calls on one link come one at a time, from any thread.
/// A process that was forked from the one that opened a link can only close it.
///
/// Each rank makes the same calls in the same order, with equal numbers of values and equal plans.
/// A call waits for the others as long as the link's timeout says, and some seconds more to hear
/// why it failed.
pub struct Link(Mutex<Channel>);

const _: () = {
    const fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Link>();
};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a call of C. An error, or the panic that it ended with, becomes the thread's last error.
fn call<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Status> {
    // A link is poisoned if a call on it panics, and then refuses all calls.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(bug(&*panic)));
    result.map_err(|Error { status, text }| {
        let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        // A thread that ends has none any more.
        _ = LAST_ERROR.try_with(|last| last.replace(text));
        status
    })
}

fn bug(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
    Error { status: Status::Bug, text: format!("a bug of gradwire, please report it: {said}") }
}

fn status(body: impl FnOnce() -> Result<(), Error>) -> Status {
    call(body).err().unwrap_or(Status::Ok)
}

fn link(body: impl FnOnce() -> Result<Channel, Error>) -> *mut Link {
    let boxed = || Ok(Box::into_raw(Box::new(Link(Mutex::new(body()?)))));
    call(boxed).unwrap_or(ptr::null_mut())
}

fn is_null(what: &str) -> Error {
    Error::invalid(format!("{what} is NULL"))
}

/// The channel of a link. `pointer` is null or as [`Link`] says, and stays so while the channel is
/// used.
unsafe fn channel<'a>(pointer: *const Link) -> Result<MutexGuard<'a, Channel>, Error> {
    // SAFETY: by this function's contract it is null, or what `link` boxed. Only shared references
    // to it are ever made, until `gradwire_close` takes it back.
    let link = unsafe { pointer.as_ref() }.ok_or_else(|| is_null("link"))?;
    // To wait would let two threads' calls be in another order than at other ranks.
    link.0.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            Error::invalid("another thread is in a call on this link: make calls one at a time".into())
        }
        TryLockError::Poisoned(_) => {
            let text = "the link is closed: a call on it met a bug of gradwire".into();
            Error { status: Status::Failed, text }
        }
    })
}

/// A text of C. `pointer` is null, or a text that nobody changes while the result is used.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: it is not null, so by this function's contract it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Error::invalid(format!("{what} is not UTF-8: {error}")))
}

/// Values of C. `pointer` is null, or that of `n` values that nobody else uses while the result is
/// used.
unsafe fn values<'a>(pointer: *mut f32, n: usize) -> Result<&'a mut [f32], Error> {
    if pointer.is_null() {
        return Err(is_null("values"));
    }
    if !pointer.is_aligned() {
        return Err(Error::invalid("values are not aligned: expected a multiple of 4 as address".into()));
    }
    const MOST: usize = isize::MAX as usize / size_of::<f32>();
    if !(1..=MOST).contains(&n) {
        return Err(Error::invalid(format!("n is {n}: expected 1 to {MOST} values")));
    }
    // SAFETY: it is neither null nor misaligned, and `n` values are no more bytes than an object
    // may have. The rest is this function's contract; any bits are an `f32`.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, n) })
}

/// Writes a text and a zero byte. `to` is null, or has room for `len` bytes.
unsafe fn write(text: &str, to: *mut c_char, len: usize) -> Result<(), Error> {
    if to.is_null() {
        return Err(is_null("text"));
    }
    if text.len() >= len {
        return Err(Error::invalid(format!("len is {len}: expected room for {} bytes", text.len() + 1)));
    }
    let bytes = [text.as_bytes(), &[0]].concat();
    // SAFETY: there is room, as was compared, and nobody else uses it. New bytes of Rust's do not
    // overlap with C's memory.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    Ok(())
}

/// Connects to all other ranks: rank 0 listens at `root`, as `IP:PORT` or `[IP]:PORT`, and all
/// others know it. If the system is to choose rank 0's port, see gradwire_listen().
///
/// `token` has 64 hexadecimal digits, the same at all ranks and secret (gradwire_token()). Ranks
/// wait for each other at most `timeout_s` seconds, now and in each call. With `tagged`, there are
/// connections for plans of "wire:" and "ring:", too; all ranks say so, or none.
///
/// Returns NULL if it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_open(
    rank: usize,
    ranks: usize,
    root: *const c_char,
    token: *const c_char,
    timeout_s: f64,
    tagged: bool,
) -> *mut Link {
    link(|| {
        // SAFETY: the caller gives a text.
        let root = unsafe { text(root, "root") }?;
        // SAFETY: likewise.
        let token = unsafe { text(token, "token") }?;
        Channel::open(rank, ranks, root, token, timeout_s, tagged)
    })
}

/// The first half of gradwire_open(): listens at `address`, as `IP:PORT` or `[IP]:PORT`, where port
/// 0 lets the system choose. Rank 0 takes an address of its own that the others reach; the others
/// may take 0.0.0.0:0.
///
/// Returns NULL if it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_listen(
    address: *const c_char,
    token: *const c_char,
    timeout_s: f64,
    tagged: bool,
) -> *mut Link {
    link(|| {
        // SAFETY: the caller gives a text.
        let address = unsafe { text(address, "address") }?;
        // SAFETY: likewise.
        let token = unsafe { text(token, "token") }?;
        Channel::listen(address, token, timeout_s, tagged)
    })
}

/// Writes the address at which the link listens, with its port, to the `len` bytes at `text`. What
/// rank 0 has here, all ranks give to gradwire_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_address(link: *const Link, text: *mut c_char, len: usize) -> Status {
    status(|| {
        // SAFETY: the caller gives a link.
        let address = unsafe { channel(link) }?.address()?;
        // SAFETY: the caller gives so much room.
        unsafe { write(&address, text, len) }
    })
}

/// The second half of gradwire_open(): connects to all other ranks. Rank 0 listens at `root`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_connect(
    link: *mut Link,
    rank: usize,
    ranks: usize,
    root: *const c_char,
) -> Status {
    status(|| {
        // SAFETY: the caller gives a link.
        let mut channel = unsafe { channel(link) }?;
        // SAFETY: the caller gives a text.
        channel.connect(rank, ranks, unsafe { text(root, "root") }?)
    })
}

/// Replaces `n` values by their sums over all ranks, as f32 adds them, over a ring. No NIC or shim
/// changes them. All ranks get the same bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_all_reduce(link: *mut Link, values: *mut f32, n: usize) -> Status {
    status(|| {
        // SAFETY: the caller gives a link.
        let mut channel = unsafe { channel(link) }?;
        // SAFETY: the caller gives so many values.
        channel.all_reduce(unsafe { self::values(values, n) }?)
    })
}

/// Replaces `n` values by their sums over all ranks, compressed as `plan` says: a codec, such as
/// "bounded:10" or "q8", the text of a plan's file, or "wire:2:10", which NICs or shims on the way
/// compress (docs/collectives.md). All ranks get the same bits.
///
/// The values are one tensor, a vector with the name "values". If it has fewer values than the
/// plan's `small`, 1024 by default, it goes as f32.
///
/// What a codec with feedback leaves out is the link's residual, at each rank its own. The next
/// call of this function with values that are not all zero adds it, whatever its plan; one that
/// sends f32 leaves none. While there is a residual, calls of this function with another `n` are
/// invalid: give one buffer with all gradients, or open a link for each buffer. gradwire_close()
/// forgets the residual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_all_reduce_comp(
    link: *mut Link,
    values: *mut f32,
    n: usize,
    plan: *const c_char,
) -> Status {
    status(|| {
        // SAFETY: the caller gives a link.
        let mut channel = unsafe { channel(link) }?;
        // SAFETY: the caller gives a text.
        let plan = unsafe { text(plan, "plan") }?;
        // SAFETY: the caller gives so many values, which are no part of the text.
        channel.all_reduce_comp(unsafe { self::values(values, n) }?, plan)
    })
}

/// Leaves the job: tells the others, closes all connections, and frees the link. Does nothing with
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_close(link: *mut Link) {
    if !link.is_null() {
        // SAFETY: `self::link` boxed it, and the caller uses it no more.
        let link = unsafe { Box::from_raw(link) };
        _ = status(|| {
            drop(link);
            Ok(())
        });
    }
}

/// Writes a new token, 64 hexadecimal digits, to the `len` bytes at `text`; 65 are enough. One rank
/// makes it, and sends it to the others on a way that strangers do not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradwire_token(text: *mut c_char, len: usize) -> Status {
    // SAFETY: the caller gives so much room.
    status(|| unsafe { write(&link::token()?, text, len) })
}

/// Why the last call of this thread that failed did so, and what would be right; "" if none has.
/// The text is valid until the next one fails, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn gradwire_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn gradwire_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C cannot make a call panic, so `check` does not see this.
    #[test]
    fn no_panic_leaves_a_call_and_its_link_is_of_no_more_use() {
        let token = "0".repeat(64);
        let link = link(|| Channel::listen("127.0.0.1:0", &token, 1.0, false));
        let said = || {
            // SAFETY: a text that this thread reads before its next call.
            let said = unsafe { CStr::from_ptr(gradwire_last_error()) };
            said.to_str().unwrap().to_owned()
        };
        let panics = || {
            // SAFETY: it was made above.
            let _channel = unsafe { channel(link) }?;
            panic!("a cause\0with a zero byte")
        };
        assert_eq!(status(panics), Status::Bug);
        assert!(said().ends_with("report it: a cause\\0with a zero byte"), "{}", said());
        let mut value = 1.0;
        // SAFETY: it was made above, and is not closed.
        let refused = unsafe { gradwire_all_reduce(link, &raw mut value, 1) };
        assert_eq!(refused, Status::Failed);
        assert!(said().starts_with("the link is closed"), "{}", said());
        // SAFETY: likewise, and it is used no more.
        unsafe { gradwire_close(link) };
    }
}
