// The receiving direction: groups to values.
//
// Enters:  frames on an AXI4-Stream of 256 bits; `s_axis_tuser` (`gw_pkg::layout_t`) counts with a
//          frame's first beat, and is that of the frame before compression.
// Leaves:  the bytes before the first group, the values, the bytes behind the last group.
//          `m_axis_tuser` with a frame's last beat: it was refused, and nothing of it may be used.
//          A group is not whole, or an absent lane has a tag.
// Latency: 33 clocks from a beat to the beat that its first byte is in, if that is complete. A
//          frame of n beats takes n + 1 clocks, or two more than it has bursts and header cells.
// Follows: firmware/gateware/model/src/decompressor.rs, which gives up a refused frame at once.

module gw_decompressor (
    input  logic         clk,
    input  logic         rst,

    input  logic [255:0] s_axis_tdata,
    input  logic [31:0]  s_axis_tkeep,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic         s_axis_tlast,
    input  logic [47:0]  s_axis_tuser,

    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic         m_axis_tuser
);

`ifdef GW_FAULTS
  logic fault_absent_lane;
  initial fault_absent_lane = $test$plusargs("fault_absent_lane");
`else
  localparam logic fault_absent_lane = 1'b0;
`endif

  localparam int DEPTH = 32;

  // Cells: 4 clocks.
  logic cell_room, cell_issue, cell_valid, cell_first, cell_last, cell_bypass;
  logic [255:0] cell_data;
  logic [4:0] cell_start;
  logic [5:0] cell_count;
  logic [15:0] cell_values;
  logic [11:0] cell_params;
  logic [3:0] unused_b;

  gw_front front (
      .clk(clk),
      .rst(rst),
      .s_axis_tdata(s_axis_tdata),
      .s_axis_tkeep(s_axis_tkeep),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_axis_tready),
      .s_axis_tlast(s_axis_tlast),
      .s_axis_tuser(s_axis_tuser),
      .room(cell_room),
      .issue(cell_issue),
      .cell_valid(cell_valid),
      .cell_data(cell_data),
      .cell_start(cell_start),
      .cell_count(cell_count),
      .cell_first(cell_first),
      .cell_last(cell_last),
      .cell_bypass(cell_bypass),
      .cell_values(cell_values),
      .cell_params({cell_params, unused_b})
  );

  // Look-ahead: 4 clocks. What goes beside a cell: for the walk the first 15 bits, for the data the
  // others.
  localparam int BESIDE = 5 + 3 + 1 + 12;
  logic ahead_valid, ahead_last, ahead_short, ahead_bypass, ahead_first;
  logic [255:0] ahead_data, ahead_entries;
  logic [5:0] ahead_count;
  logic [13:0] ahead_groups;
  logic [BESIDE-1:0] ahead_beside;

  gw_ahead #(
      .SIDE(15 + BESIDE)
  ) ahead (
      .clk(clk),
      .rst(rst),
      .cell_valid(cell_valid),
      .cell_data(cell_data),
      .cell_count(cell_count),
      .cell_last(cell_last),
      .cell_bypass(cell_bypass),
      .cell_side({
        cell_first,
        {1'b0, cell_values[15:3]} + {13'd0, cell_values[2:0] != 3'd0},
        cell_start,
        cell_values[2:0],
        cell_values != 16'd0,
        cell_params
      }),
      .out_valid(ahead_valid),
      .out_data(ahead_data),
      .out_count(ahead_count),
      .out_last(ahead_last),
      .out_short(ahead_short),
      .out_bypass(ahead_bypass),
      .out_side({ahead_first, ahead_groups, ahead_beside}),
      .out_entries(ahead_entries)
  );

  // Items: 3 clocks.
  logic cell_done, item_room, item_issue;
  logic item_valid, item_advance, item_bytes, item_skip, item_bad, item_final, item_short, item_bypass, item_last;
  logic [4:0] item_at;

  gw_credits #(
      .DEPTH(DEPTH)
  ) credits (
      .clk(clk),
      .rst(rst),
      .issue(cell_issue),
      .done(cell_done),
      .room(cell_room)
  );

  gw_walk #(
      .DEPTH(DEPTH)
  ) walk (
      .clk(clk),
      .rst(rst),
      .push(ahead_valid),
      .push_entries(ahead_entries),
      .push_first(ahead_first),
      .push_last(ahead_last),
      .push_short(ahead_short),
      .push_bypass(ahead_bypass),
      .push_groups(ahead_groups),
      .popped(cell_done),
      .room(item_room),
      .issue(item_issue),
      .item_valid(item_valid),
      .item_advance(item_advance),
      .item_at(item_at),
      .item_bytes(item_bytes),
      .item_skip(item_skip),
      .item_bad(item_bad),
      .item_final(item_final),
      .item_short(item_short),
      .item_bypass(item_bypass),
      .item_last(item_last)
  );

  // The items' bytes: the same cells, which follow the walk a clock behind its items, since they
  // pass through a register before the one in which an item finds its cell. Of the cell behind
  // these two an item needs one byte at most, which it takes from the memory.
  logic data_valid, data_pop;
  logic [255:0] data_head;
  logic [5:0] count_head;
  logic [BESIDE-1:0] beside_head;

  gw_fifo #(
      .WIDTH(256 + 6 + BESIDE),
      .DEPTH(DEPTH)
  ) data_fifo (
      .clk(clk),
      .rst(rst),
      .push(ahead_valid),
      .in({ahead_data, ahead_count, ahead_beside}),
      .pop(data_pop),
      .valid(data_valid),
      .out({data_head, count_head, beside_head})
  );

  logic here_valid, next_valid, load_here, load_next;
  logic [255:0] here, next;
  logic [5:0] here_count, next_count;
  logic [BESIDE-1:0] here_beside, next_beside;
  logic step_valid, step_bytes, step_skip, step_bad, step_final, step_short, step_bypass, step_last;
  logic [4:0] step_at;

  // Each of the two `load` reaches a whole cell, so they are registers.
  logic here_valid_d, next_valid_d, moves;
  assign here_valid_d = load_here ? next_valid : here_valid;
  assign next_valid_d = load_next ? data_valid : next_valid;
  assign moves = item_valid && item_advance;
  assign data_pop = data_valid && load_next;

  always_ff @(posedge clk) begin
    step_valid <= item_valid;
    step_at <= item_at;
    step_bytes <= item_bytes;
    step_skip <= item_skip;
    step_bad <= item_bad;
    step_final <= item_final;
    step_short <= item_short;
    step_bypass <= item_bypass;
    step_last <= item_last;

    here_valid <= here_valid_d;
    next_valid <= next_valid_d;
    load_here <= !here_valid_d || moves;
    load_next <= !next_valid_d || !here_valid_d || moves;
    if (load_here) begin
      here <= next;
      here_count <= next_count;
      here_beside <= next_beside;
    end
    if (load_next) begin
      next <= data_head;
      next_count <= count_head;
      next_beside <= beside_head;
    end
    if (rst) begin
      step_valid <= 1'b0;
      here_valid <= 1'b0;
      next_valid <= 1'b0;
      load_here  <= 1'b1;
      load_next  <= 1'b1;
    end
  end

  logic [4:0] here_start, turn;
  logic [2:0] here_lanes;
  logic here_owed;
  logic [11:0] here_params;
  logic [519:0] window;
  logic [6:0] here_rest;

  assign {here_start, here_lanes, here_owed, here_params} = here_beside;
  assign window = {data_head[7:0], next, here};
  assign turn = step_at | here_start;
  assign here_rest = {1'b0, here_count} - {2'd0, step_at};

  // Stages 1 and 2: the item's bytes move to the front. A group that is not whole and a step that
  // is nothing have none.
  logic v1, v2, bytes1, bytes2, group1, group2, last1, last2, refused1, refused2;
  logic [327:0] data1;
  logic [271:0] data2;
  logic [2:0] turn1, lanes1, lanes2;
  logic [5:0] length1, length2;
  logic [11:0] params1, params2;

  always_ff @(posedge clk) begin
    v1 <= step_valid;
    data1 <= 328'(window >> {turn[4:3], 6'd0});
    turn1 <= turn[2:0];
    bytes1 <= step_bytes;
    group1 <= !step_bytes && !step_skip && !step_bad;
    last1 <= step_last;
    params1 <= here_params;
    // Values of the item, if it has fewer than eight.
    lanes1 <= step_final && !step_bytes ? here_lanes : 3'd0;
    if (step_bytes) length1 <= here_rest[6] ? 6'd0 : here_rest[5:0];
    else if (step_skip || step_bad) length1 <= 6'd0;
    else length1 <= step_final && here_lanes != 3'd0 ? {1'b0, here_lanes, 2'd0} : 6'd32;
    // A group that is not whole shows itself, or behind it: in a step over its cell, or as bytes
    // that begin beyond the end.
    if (step_skip) refused1 <= step_short;
    else if (step_bytes) refused1 <= step_bypass ? step_last && here_owed : here_rest[6];
    else refused1 <= step_bad;

    v2 <= v1;
    data2 <= 272'(data1 >> {turn1, 3'd0});
    bytes2 <= bytes1;
    group2 <= group1;
    last2 <= last1;
    params2 <= params1;
    lanes2 <= lanes1;
    length2 <= length1;
    refused2 <= refused1;
    if (rst) begin
      v1 <= 1'b0;
      v2 <= 1'b0;
    end
  end

  // Stage 3: tags and vectors. Bytes that pass are eight raw lanes.
  logic v3, last3, refused3;
  logic [15:0] tags3, absent;
  logic [255:0] vectors3;
  logic [5:0] length3;
  logic [11:0] params3;

  always_comb begin
    for (int i = 0; i < 8; i++) absent[2*i+:2] = {2{lanes2 != 3'd0 && 3'(i) >= lanes2}};
  end

  always_ff @(posedge clk) begin
    v3 <= v2;
    tags3 <= bytes2 ? 16'hffff : data2[15:0];
    vectors3 <= bytes2 ? data2[255:0] : data2[271:16];
    length3 <= length2;
    last3 <= last2;
    params3 <= params2;
    refused3 <= refused2 || (group2 && (data2[15:0] & absent & {!fault_absent_lane, 15'h7fff}) != 16'd0);
    if (rst) v3 <= 1'b0;
  end

  // Stage 4, beside the tree: what was refused before in the frame.
  logic v4, last4, refused4, refused_before;
  logic [5:0] length4;

  always_ff @(posedge clk) begin
    v4 <= v3;
    length4 <= length3;
    last4 <= last3;
    refused4 <= refused3 || refused_before;
    if (v3) refused_before <= !last3 && (refused3 || refused_before);
    if (rst) begin
      v4 <= 1'b0;
      refused_before <= 1'b0;
    end
  end

  // Splitter tree: 6 clocks. Lanes: 4.
  logic [255:0] vectors9, values13;
  logic [15:0] tags9;
  logic [11:0] params9;
  logic [5:0] length13;
  logic last13, refused13;
  logic [8:0] valid_beside;

  gw_splitter_tree tree (
      .clk(clk),
      .tags(tags3),
      .vectors(vectors3),
      .lanes(vectors9),
      .lane_tags(tags9)
  );

  gw_delay #(
      .WIDTH (12),
      .CLOCKS(6)
  ) params_beside (
      .clk(clk),
      .in (params3),
      .out(params9)
  );

  for (genvar i = 0; i < 8; i++) begin : lane
    gw_decompress_lane block (
        .clk(clk),
        .tag(tags9[2*i+:2]),
        .bits(vectors9[32*i+:32]),
        .k(params9[3:0]),
        .raw_from(params9[11:4]),
        .value(values13[32*i+:32])
    );
  end

  gw_delay #(
      .WIDTH (8),
      .CLOCKS(9)
  ) item_beside (
      .clk(clk),
      .in ({length4, last4, refused4}),
      .out({length13, last13, refused13})
  );

  always_ff @(posedge clk) begin
    valid_beside <= {valid_beside[7:0], v4};
    if (rst) valid_beside <= 9'd0;
  end

  gw_packer packer (
      .clk(clk),
      .rst(rst),
      .issue(item_issue),
      .room(item_room),
      .chunk_valid(valid_beside[8]),
      .chunk_body(values13),
      .chunk_start(5'd0),
      .chunk_tags(16'd0),
      .chunk_tagged(1'b0),
      .chunk_length(length13),
      .chunk_last(last13),
      .chunk_user(refused13),
      .m_axis_tdata(m_axis_tdata),
      .m_axis_tkeep(m_axis_tkeep),
      .m_axis_tvalid(m_axis_tvalid),
      .m_axis_tready(m_axis_tready),
      .m_axis_tlast(m_axis_tlast),
      .m_axis_tuser(m_axis_tuser)
  );

endmodule
