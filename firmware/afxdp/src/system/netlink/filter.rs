//! Filters of frames, from the kernel's answers: nftables' chains (linux/netfilter/nf_tables.h),
//! and the filters of traffic control (linux/rtnetlink.h, linux/pkt_sched.h).

use std::io;

use super::{Attributes, Netlink, first, text};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN`.
const GETCHAIN: u16 = 10 << 8 | 4;
/// `struct nfgenmsg`.
const FAMILY_LEN: usize = 4;
/// `NFPROTO_BRIDGE`.
pub const BRIDGE: u8 = 7;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NF_DROP: u32 = 0;

const RTM_GETTFILTER: u16 = 46;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`, and of `TC_H_MIN_EGRESS`.
const PARENTS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// A chain of nftables that hangs in the way of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The kernel's number for the family of its table; [`BRIDGE`] is one.
    pub family: u8,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The hook that it hangs on, by its family's numbers.
    pub hook: u32,
    /// The devices whose frames it sees; none if it sees those of all.
    pub devices: Vec<String>,
    /// Whether it does something: it has rules, or drops what no rule accepts.
    pub acts: bool,
}

/// All of them.
///
/// # Errors
/// The kernel does not answer, or not without `CAP_NET_ADMIN`.
pub fn chains() -> io::Result<Vec<Chain>> {
    let mut all = Vec::new();
    // Family 0: all of them.
    let asked = Netlink::netfilter().and_then(|mut netlink| {
        netlink.dump(GETCHAIN, &[0; FAMILY_LEN], |chain| all.extend(Chain::parse(chain)))
    });
    asked.map(|()| all).or_else(none_if_unknown)
}

/// A kernel that was built without it has none.
fn none_if_unknown<T: Default>(error: io::Error) -> io::Result<T> {
    match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL) => Ok(T::default()),
        _ => Err(error),
    }
}

impl Chain {
    /// None if it is no chain that hangs in the way.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let ([family, _, _, _], attributes) = message.split_first_chunk::<FAMILY_LEN>()?;
        let chain = Attributes(attributes);
        let hook = Attributes(chain.find(NFTA_CHAIN_HOOK)?);
        let number = |attributes: Attributes<'_>, kind| attributes.u32(kind).map(u32::from_be);
        let many = hook.nested(NFTA_HOOK_DEVS).map(|(_, name)| text(name));
        Some(Self {
            family: *family,
            table: chain.text(NFTA_CHAIN_TABLE)?,
            name: chain.text(NFTA_CHAIN_NAME)?,
            hook: number(hook, NFTA_HOOK_HOOKNUM)?,
            devices: hook.text(NFTA_HOOK_DEV).into_iter().chain(many).collect(),
            acts: number(chain, NFTA_CHAIN_USE) != Some(0)
                || number(chain, NFTA_CHAIN_POLICY) == Some(NF_DROP),
        })
    }
}

/// Whether traffic control has filters for the frames that come in at a device, or leave there.
///
/// # Errors
/// The kernel does not answer.
pub fn has_traffic_filter(device: u32) -> io::Result<bool> {
    let mut found = false;
    for parent in PARENTS {
        // `struct tcmsg`: family, device, handle, parent, info.
        let words = [0, device, 0, parent, 0];
        let body = words.map(u32::to_ne_bytes).concat();
        Netlink::route()?
            .dump(RTM_GETTFILTER, &body, |message| found |= first::<20>(message).is_ok())
            .or_else(none_if_unknown)?;
    }
    Ok(found)
}
