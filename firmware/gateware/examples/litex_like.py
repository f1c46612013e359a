"""gw_nic as a LiteX module: an instance between a LiteEth MAC and what is behind it.

LiteEth's streams are narrower, and mark a frame's last byte with `last_be`: a converter to 256 bits with a `keep` bit for each
byte belongs on each side, and is not here. The registers are an AXI4-Lite slave at a region of 4 KiB.

Not tried: LiteX is on no registry that CI may use. A test checks that it connects every port of
gw_nic.sv in its direction, and no other.
"""

from pathlib import Path

from litex.soc.interconnect import axi, stream
from migen import ClockSignal, Instance, Module, ResetSignal, Signal

RTL = Path(__file__).resolve().parent.parent / "rtl"
LAYOUT = [("data", 256), ("keep", 32)]


class GradwireNic(Module):
    """Frames of the host enter at `host_sink` and leave at `wire_source`; the other way round, `wire_sink` and `host_source`."""

    def __init__(self, platform):
        self.host_sink = stream.Endpoint(LAYOUT)
        self.host_source = stream.Endpoint(LAYOUT)
        self.wire_sink = stream.Endpoint(LAYOUT)
        self.wire_source = stream.Endpoint(LAYOUT)
        self.bus = axi.AXILiteInterface(data_width=32, address_width=12)
        # What the owner of a TCP flow knows of the frame whose first beat is offered; 0: nobody
        # does.
        self.host_knows = Signal(8)

        ports = dict(
            i_clk=ClockSignal("sys"),
            i_rst=ResetSignal("sys"),
            i_s_axis_host_tuser=self.host_knows,
        )
        for side in ("host", "wire"):
            sink, source = getattr(self, f"{side}_sink"), getattr(self, f"{side}_source")
            ports |= {
                f"i_s_axis_{side}_tdata": sink.data,
                f"i_s_axis_{side}_tkeep": sink.keep,
                f"i_s_axis_{side}_tvalid": sink.valid,
                f"o_s_axis_{side}_tready": sink.ready,
                f"i_s_axis_{side}_tlast": sink.last,
                f"o_m_axis_{side}_tdata": source.data,
                f"o_m_axis_{side}_tkeep": source.keep,
                f"o_m_axis_{side}_tvalid": source.valid,
                f"i_m_axis_{side}_tready": source.ready,
                f"o_m_axis_{side}_tlast": source.last,
            }
        bus = self.bus
        for name, channel in (("aw", bus.aw), ("ar", bus.ar)):
            ports |= {
                f"i_s_axil_{name}addr": channel.addr,
                f"i_s_axil_{name}prot": 0,
                f"i_s_axil_{name}valid": channel.valid,
                f"o_s_axil_{name}ready": channel.ready,
            }
        ports |= {
            "i_s_axil_wdata": bus.w.data,
            "i_s_axil_wstrb": bus.w.strb,
            "i_s_axil_wvalid": bus.w.valid,
            "o_s_axil_wready": bus.w.ready,
            "o_s_axil_bresp": bus.b.resp,
            "o_s_axil_bvalid": bus.b.valid,
            "i_s_axil_bready": bus.b.ready,
            "o_s_axil_rdata": bus.r.data,
            "o_s_axil_rresp": bus.r.resp,
            "o_s_axil_rvalid": bus.r.valid,
            "i_s_axil_rready": bus.r.ready,
        }
        self.specials += Instance("gw_nic", **ports)

        # Packages first.
        packages = [RTL / "gw_pkg.sv", RTL / "gw_nic_pkg.sv"]
        for path in packages + sorted(set(RTL.glob("*.sv")) - set(packages)):
            platform.add_source(str(path), "systemverilog")
