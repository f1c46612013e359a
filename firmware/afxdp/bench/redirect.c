/*
 * What the kernel can do at best: `redirect` sends every frame out of one other interface, `pass` leaves every frame to
 * the bridge.
 */
#include "../bpf/bpf.h"

static long (*const bpf_redirect)(u32 interface, u64 flags) = (void *)23;

const volatile u32 other = 0;

SEC("xdp")
int redirect(struct xdp_md *xdp)
{
	return bpf_redirect(other, 0);
}

SEC("xdp")
int pass(struct xdp_md *xdp)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "MIT OR Apache-2.0";
