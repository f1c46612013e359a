// The ports of every wrapper, which sim/driver.cpp drives: two streams in, two streams out, a bus
// of registers.

    input  logic         clk,
    input  logic         rst,

    input  logic [255:0] s0_tdata,
    input  logic [31:0]  s0_tkeep,
    input  logic         s0_tvalid,
    output logic         s0_tready,
    input  logic         s0_tlast,
    input  logic [63:0]  s0_tuser,
    output logic [255:0] m0_tdata,
    output logic [31:0]  m0_tkeep,
    output logic         m0_tvalid,
    input  logic         m0_tready,
    output logic         m0_tlast,
    output logic [63:0]  m0_tuser,

    input  logic [255:0] s1_tdata,
    input  logic [31:0]  s1_tkeep,
    input  logic         s1_tvalid,
    output logic         s1_tready,
    input  logic         s1_tlast,
    input  logic [63:0]  s1_tuser,
    output logic [255:0] m1_tdata,
    output logic [31:0]  m1_tkeep,
    output logic         m1_tvalid,
    input  logic         m1_tready,
    output logic         m1_tlast,
    output logic [63:0]  m1_tuser,

    input  logic         reg_valid,
    input  logic         reg_write,
    input  logic [15:0]  reg_addr,
    input  logic [31:0]  reg_wdata,
    output logic         reg_ready,
    output logic [31:0]  reg_rdata
