// The sending direction: values to groups.
//
// Enters:  frames on an AXI4-Stream of 256 bits; `s_axis_tuser` (`gw_pkg::layout_t`) counts with a
//          frame's first beat.
// Leaves:  the bytes before the first value, the groups, the bytes behind the last value. A frame
//          that ends before its layout says: the whole values that are there are coded.
// Latency: 23 clocks from a beat to the beat that its first byte is in, if that is complete. A
//          frame of n beats takes n + 1 clocks, or as many as it has beats of output.
// Follows: firmware/gateware/model/src/compressor.rs.

module gw_compressor (
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
    output logic         m_axis_tlast
);

`ifdef GW_FAULTS
  logic fault_frame_end;
  initial fault_frame_end = $test$plusargs("fault_frame_end");
`else
  localparam logic fault_frame_end = 1'b0;
`endif

  logic room, issue, cell_valid, cell_first, cell_last, cell_bypass;
  logic [255:0] cell_data;
  logic [4:0] cell_start;
  logic [5:0] cell_count;
  logic [15:0] cell_values, cell_params;

  gw_front front (
      .clk(clk),
      .rst(rst),
      .s_axis_tdata(s_axis_tdata),
      .s_axis_tkeep(s_axis_tkeep),
      .s_axis_tvalid(s_axis_tvalid),
      .s_axis_tready(s_axis_tready),
      .s_axis_tlast(s_axis_tlast),
      .s_axis_tuser(s_axis_tuser),
      .room(room),
      .issue(issue),
      .cell_valid(cell_valid),
      .cell_data(cell_data),
      .cell_start(cell_start),
      .cell_count(cell_count),
      .cell_first(cell_first),
      .cell_last(cell_last),
      .cell_bypass(cell_bypass),
      .cell_values(cell_values),
      .cell_params(cell_params)
  );

  // Stage 1: how many lanes have a value by the layout. Those among them whose four bytes are there
  // are coded, so a frame that ends early needs no other care.
  logic v1, bypass1, last1;
  logic [255:0] data1;
  logic [15:0] params1;
  logic [5:0] count1;
  logic [4:0] start1;
  logic [3:0] limit1;
  logic [12:0] bursts, bursts_now;  // whole bursts left
  logic [2:0] rest, rest_now;       // and values behind them

  assign bursts_now = cell_first ? cell_values[15:3] : bursts;
  assign rest_now   = cell_first ? cell_values[2:0] : rest;

  always_ff @(posedge clk) begin
    v1 <= cell_valid;
    data1 <= cell_data;
    params1 <= cell_params;
    count1 <= cell_count;
    start1 <= cell_start;
    last1 <= cell_last;
    bypass1 <= cell_bypass;
    limit1 <= bursts_now != 13'd0 ? 4'd8 : {1'b0, rest_now};
    if (cell_valid) begin
      bursts <= bursts_now;
      rest   <= rest_now;
      if (!cell_bypass) begin
        if (bursts_now != 13'd0) bursts <= bursts_now - 13'd1;
        else rest <= 3'd0;
      end
    end
    if (rst) v1 <= 1'b0;
  end

  // Stage 2: which lanes are coded.
  logic v2, last2;
  logic [7:0] coded2;
  logic [255:0] data2;
  logic [15:0] params2;
  logic [5:0] count2;
  logic [4:0] start2;

  always_ff @(posedge clk) begin
    v2 <= v1;
    data2 <= data1;
    params2 <= params1;
    count2 <= count1;
    start2 <= start1;
    last2 <= last1;
    for (int i = 0; i < 8; i++) begin
      coded2[i] <= !bypass1 && 4'(i) < limit1 && 6'(4 * i + 4) <= count1 + {5'd0, fault_frame_end};
    end
    if (rst) v2 <= 1'b0;
  end

  // Lanes: 4 clocks.
  logic [255:0] vectors;
  logic [15:0] tags;
  logic [23:0] lengths;

  for (genvar i = 0; i < 8; i++) begin : lane
    gw_compress_lane block (
        .clk(clk),
        .value(data2[32*i+:32]),
        .coded(coded2[i]),
        .b(params2[3:0]),
        .k(params2[7:4]),
        .raw_from(params2[15:8]),
        .tag(tags[2*i+:2]),
        .length(lengths[3*i+:3]),
        .bits(vectors[32*i+:32])
    );
  end

  // Shifter tree: 5 clocks.
  logic [255:0] body;
  logic [5:0] body_length;
  logic [15:0] body_tags;

  gw_shifter_tree tree (
      .clk(clk),
      .lanes(vectors),
      .lengths(lengths),
      .packed_(body),
      .length(body_length)
  );

  gw_delay #(
      .WIDTH (16),
      .CLOCKS(5)
  ) tags_beside (
      .clk(clk),
      .in (tags),
      .out(body_tags)
  );

  // Beside lanes and tree. A lane that is not coded counts four bytes, also beyond the frame's end:
  // what the frame has less than 32 bytes is taken off again.
  logic [12:0] beside;
  logic [8:0] valid_beside;
  logic body_tagged, body_last;
  logic [5:0] body_count;
  logic [4:0] body_start;

  gw_delay #(
      .WIDTH (13),
      .CLOCKS(9)
  ) cell_beside (
      .clk(clk),
      .in ({coded2[0], last2, count2, start2}),
      .out(beside)
  );
  assign {body_tagged, body_last, body_count, body_start} = beside;

  always_ff @(posedge clk) begin
    valid_beside <= {valid_beside[7:0], v2};
    if (rst) valid_beside <= 9'd0;
  end

  // One stage more for the length.
  logic v12, tagged12, last12;
  logic [255:0] body12;
  logic [15:0] tags12;
  logic [5:0] length12;
  logic [4:0] start12;

  always_ff @(posedge clk) begin
    v12 <= valid_beside[8];
    body12 <= body;
    tags12 <= body_tags;
    tagged12 <= body_tagged;
    last12 <= body_last;
    start12 <= body_start;
    // Modulo 64, in which 32 is its own negative.
    length12 <= body_length + (body_count ^ 6'd32) + {4'd0, body_tagged, 1'b0};
    if (rst) v12 <= 1'b0;
  end

  logic unused_user;

  gw_packer packer (
      .clk(clk),
      .rst(rst),
      .issue(issue),
      .room(room),
      .chunk_valid(v12),
      .chunk_body(body12),
      .chunk_start(start12),
      .chunk_tags(tags12),
      .chunk_tagged(tagged12),
      .chunk_length(length12),
      .chunk_last(last12),
      .chunk_user(1'b0),
      .m_axis_tdata(m_axis_tdata),
      .m_axis_tkeep(m_axis_tkeep),
      .m_axis_tvalid(m_axis_tvalid),
      .m_axis_tready(m_axis_tready),
      .m_axis_tlast(m_axis_tlast),
      .m_axis_tuser(unused_user)
  );

endmodule
