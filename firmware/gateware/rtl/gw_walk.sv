// Walks through a frame's cells from group to group: the one loop of the decompressor.
//
// Each step is an item: a group, or the bytes of a cell that are no group's, or nothing, where a
// group reached beyond the cell behind its own. A step is taken once all bytes that a group may
// have are there, which is two cells more, or the frame's end.
//
// Enters:  cells with the entries of gw_ahead.sv; `room` while the pipeline behind takes the items of four more clocks.
// Leaves:  items. `item_advance` says that the next item is in the next cell.
// Latency: 3 clocks, an item each.
// Follows: `Intake::front` and `Intake::take` of firmware/gateware/model/src/intake.rs, for the
// decompressor.

module gw_walk #(
    parameter int DEPTH = 32
) (
    input  logic         clk,
    input  logic         rst,

    input  logic         push,
    input  logic [255:0] push_entries,
    input  logic         push_first,
    input  logic         push_last,
    input  logic         push_short,
    input  logic         push_bypass,
    input  logic [13:0]  push_groups,  // of the frame; counts with the first cell
    output logic         popped,

    input  logic         room,
    output logic         issue,

    output logic         item_valid,
    output logic         item_advance,
    output logic [4:0]   item_at,      // the byte in the cell
    output logic         item_bytes,   // from there on, the cell's bytes pass as they are
    output logic         item_skip,    // nothing
    output logic         item_bad,     // a group that is not whole
    output logic         item_final,   // the frame's last group
    output logic         item_short,   // the frame ends in this cell or at its end
    output logic         item_bypass,  // no value is in the cell by the layout
    output logic         item_last     // the frame is over
);

`ifdef GW_FAULTS
  logic fault_skip;
  initial fault_skip = $test$plusargs("fault_skip");
`else
  localparam logic fault_skip = 1'b0;
`endif

  logic head_valid, head_first, head_last, head_short, head_bypass;
  logic [255:0] head_entries;
  logic [13:0] head_groups;
  logic pop;

  assign popped = pop;

  gw_fifo #(
      .WIDTH(256 + 4 + 14),
      .DEPTH(DEPTH)
  ) fifo (
      .clk(clk),
      .rst(rst),
      .push(push),
      .in({push_entries, push_first, push_last, push_short, push_bypass, push_groups}),
      .pop(pop),
      .valid(head_valid),
      .out({head_entries, head_first, head_last, head_short, head_bypass, head_groups})
  );

  // How many cells, and how many ends of frames, are behind the one in hand.
  logic [5:0] cells, ends, cells_more, ends_more;
  logic two_behind, end_behind;

  assign cells_more = cells + {5'd0, push};
  assign ends_more  = ends + {5'd0, push && push_last};

  always_ff @(posedge clk) begin
    cells <= cells_more - {5'd0, pop};
    ends <= ends_more - {5'd0, pop && head_last};
    two_behind <= pop ? cells_more >= 6'd3 : cells_more >= 6'd2;
    end_behind <= pop && head_last ? ends_more >= 6'd2 : ends_more >= 6'd1;
    if (rst) begin
      cells <= 6'd0;
      ends <= 6'd0;
      two_behind <= 1'b0;
      end_behind <= 1'b0;
    end
  end

  // The cell in hand.
  logic valid, last, short_, bypass;
  logic [255:0] entries;
  // Where in it; `skip`: nowhere, `tail`: behind the last group.
  logic [4:0] at, at_d;
  logic [4:0] at_not;        // its complement: a second register for the one bit that decides if a cell is done with
  logic skip, tail;
  // Groups left, with this one.
  logic [13:0] left;
  logic only;

  logic fire, group, advance, goes_on;
  logic [4:0] at_again;
  logic [7:0] entry;

  assign fire = valid && room && (last || end_behind || two_behind);
  assign entry = entries[8*32'(at)+:8];
  assign group = !skip && !tail && !bypass;
  assign at_again = ~at_not;
  assign goes_on = entries[8*32'(at_again)+6];
  assign advance = skip || tail || goes_on;
  assign pop = head_valid && (!valid || (fire && advance));
  assign issue = fire;

  always_comb begin
    at_d = at;
    if (pop && head_first) at_d = 5'd0;
    else if (fire && tail) at_d = 5'd0;
    else if (fire && !skip) at_d = entry[4:0];
  end

  always_ff @(posedge clk) begin
    at <= at_d;
    at_not <= ~at_d;
    if (fire) begin
      skip <= !skip && !tail && entry[5] && !fault_skip;
      if (group) begin
        left <= left - 14'd1;
        only <= left == 14'd2;
        tail <= only;
      end
      if (advance) valid <= 1'b0;
    end
    if (pop) begin
      valid <= 1'b1;
      entries <= head_entries;
      last <= head_last;
      short_ <= head_short;
      bypass <= head_bypass;
      if (head_first) begin
        skip <= 1'b0;
        tail <= 1'b0;
        left <= head_groups;
        only <= head_groups == 14'd1;
      end
    end

    item_valid <= fire;
    item_advance <= skip || tail || entry[6];  // `advance`, and not in a hurry
    item_at <= at;
    item_bytes <= !skip && (tail || bypass);
    item_skip <= skip;
    item_bad <= group && entry[7];
    item_final <= only;
    item_short <= short_;
    item_bypass <= bypass;
    item_last <= advance && last;

    if (rst) begin
      valid <= 1'b0;
      item_valid <= 1'b0;
    end
  end

endmodule
