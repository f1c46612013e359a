// Alignment unit: chunks of 0 to 34 bytes to full beats.
//
// A chunk is a body of up to 32 bytes, and before it two bytes of tags, if it is a group. The body
// is rotated to the place where its bytes stand in the beats, before the FIFO, since that depends
// on lengths alone. Behind the FIFO each byte of a beat is a choice of what waited, the tags and
// the body. Of a frame 1 to 32 bytes wait: a full beat stays until more follows, so that no last
// beat is empty.
//
// Enters:  chunks, without back-pressure: `issue` says that one will come, and `room` that four more may be issued.
// Leaves:  beats of an AXI4-Stream; `m_axis_tuser` is that of a frame's last chunk.
// Latency: 7 clocks, a chunk each; a chunk that completes two beats takes two.
// Follows: `AlignmentUnit` of firmware/gateware/model/src/aligner.rs, which gives an empty last
// beat where this one does not.

module gw_packer (
    input  logic         clk,
    input  logic         rst,

    input  logic         issue,
    output logic         room,

    input  logic         chunk_valid,
    input  logic [255:0] chunk_body,
    input  logic [4:0]   chunk_start,   // of the first byte in `chunk_body`; 0 if there are tags
    input  logic [15:0]  chunk_tags,
    input  logic         chunk_tagged,
    input  logic [5:0]   chunk_length,  // with the tags, 0..=34
    input  logic         chunk_last,
    input  logic         chunk_user,

    output logic [255:0] m_axis_tdata,
    output logic [31:0]  m_axis_tkeep,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic         m_axis_tlast,
    output logic         m_axis_tuser
);

`ifdef GW_FAULTS
  logic fault_tags_cut;
  initial fault_tags_cut = $test$plusargs("fault_tags_cut");
`else
  localparam logic fault_tags_cut = 1'b0;
`endif

`ifdef GW_FAULTS
  logic fault_twice;
  initial fault_twice = $test$plusargs("fault_twice");
`else
  localparam logic fault_twice = 1'b0;
`endif

`ifdef GW_FAULTS
  logic fault_frame_border;
  initial fault_frame_border = $test$plusargs("fault_frame_border");
`else
  localparam logic fault_frame_border = 1'b0;
`endif

  // Chunks from `issue` to the FIFO's end take fewer clocks than this.
  localparam int DEPTH = 32;

  // Stage 1: where the chunk goes. `place` bytes wait then, 0..=32.
  logic [5:0] place;
  logic [4:0] place_next;
  logic v1, v2, v3;

  assign place_next = place[4:0] + chunk_length[4:0];

  logic [255:0] body1, body2, body3;
  logic [15:0] tags1, tags2, tags3;
  logic tagged1, tagged2, tagged3, last1, last2, last3, user1, user2, user3;
  logic [5:0] place1, place2, place3, length1;
  logic [4:0] turn1;
  logic [2:0] turn2;
  logic [6:0] end2;  // where the chunk ends, 0..=66
  logic over3, twice3;
  logic [5:0] rest3;  // bytes of the beat that it ends in, 0..=32

  always_ff @(posedge clk) begin
    v1 <= chunk_valid;
    if (chunk_valid) begin
      // A full beat is 32, and not 0.
      place <= {place_next == 5'd0 && (place != 6'd0 || chunk_length != 6'd0), place_next};
      if (chunk_last && !(fault_frame_border && place_next == 5'd31)) place <= 6'd0;
    end
    body1 <= chunk_body;
    tags1 <= chunk_tags;
    tagged1 <= chunk_tagged;
    last1 <= chunk_last;
    user1 <= chunk_user;
    place1 <= place;
    length1 <= chunk_length;
    turn1 <= place[4:0] + ({3'd0, chunk_tagged, 1'b0} - chunk_start);

    v2 <= v1;
    body2 <= 256'(({body1, body1} << {turn1[4:3], 6'd0}) >> 256);
    tags2 <= tags1;
    tagged2 <= tagged1;
    last2 <= last1;
    user2 <= user1;
    place2 <= place1;
    turn2 <= turn1[2:0];
    end2 <= {1'b0, place1} + {1'b0, length1};

    v3 <= v2;
    body3 <= 256'(({body2, body2} << {turn2, 3'd0}) >> 256);
    tags3 <= tags2;
    tagged3 <= tagged2;
    last3 <= last2;
    user3 <= user2;
    place3 <= place2;
    over3 <= end2 > 7'd32;
    twice3 <= end2 > 7'd64;
    rest3 <= {end2[4:0] == 5'd0 && end2 != 7'd0, end2[4:0]};
    if (rst) begin
      v1 <= 1'b0;
      v2 <= 1'b0;
      v3 <= 1'b0;
      place <= 6'd0;
    end
  end

  logic pop, head_valid;

  gw_credits #(
      .DEPTH(DEPTH)
  ) credits (
      .clk(clk),
      .rst(rst),
      .issue(issue),
      .done(pop),
      .room(room)
  );

  localparam int WIDTH = 256 + 16 + 6 + 6 + 5;
  logic [255:0] body4;
  logic [15:0] tags4;
  logic [5:0] place4, rest4;
  logic tagged4, last4, user4, over4, twice4;

  gw_fifo #(
      .WIDTH(WIDTH),
      .DEPTH(DEPTH)
  ) fifo (
      .clk(clk),
      .rst(rst),
      .push(v3),
      .in({body3, tags3, place3, rest3, tagged3, last3, user3, over3, twice3}),
      .pop(pop),
      .valid(head_valid),
      .out({body4, tags4, place4, rest4, tagged4, last4, user4, over4, twice4})
  );

  // Stage 5: the FIFO's head, and for each byte what it is in the beat that the chunk begins in.
  localparam logic [1:0] WAITED = 2'd0, LOW = 2'd1, HIGH = 2'd2, BODY = 2'd3;
  logic v5, take5;
  logic [255:0] body5;
  logic [15:0] tags5;
  logic [63:0] what5;
  logic [31:0] keep5;
  logic tagged5, last5, user5, over5, twice5, full5, almost5, fresh5;

  logic [31:0] waits4, keep4;
  assign waits4 = gw_pkg::first_of(place4);
  assign keep4 = gw_pkg::first_of(rest4);
  assign pop = head_valid && (take5 || !v5);

  always_ff @(posedge clk) begin
    if (pop) begin
      body5 <= body4;
      tags5 <= tags4;
      tagged5 <= tagged4;
      last5 <= last4;
      user5 <= user4;
      over5 <= over4;
      twice5 <= twice4;
      full5 <= place4 == 6'd32;
      almost5 <= place4 == 6'd31;
      fresh5 <= place4 == 6'd0 && !over4 && !last4;
      keep5 <= keep4;
      for (int i = 0; i < 32; i++) begin
        // Products: of a choice with WAITED in it, yosys makes a reset, and `pop` would have to
        // reach that through more logic.
        what5[2*i+:2] <= {2{!waits4[i]}} & ~{tagged4 && 6'(i) == place4, tagged4 && place4 == 6'(i - 1)};
      end
    end
    v5 <= pop || (v5 && !take5);
    if (rst) v5 <= 1'b0;
  end

  // Stage 6: what waits, and the beat that leaves.
  typedef enum logic [1:0] {
    CHUNK,   // the next chunk goes behind what waits
    SECOND,  // of a chunk that completes two beats, the first has left
    ENDING   // what waits is a frame's last beat
  } state_t;
  state_t state, state_d;
  logic apart;  // `state` is not CHUNK: a register of its own for what is as wide as a beat
  logic go, twice, beat_valid, beat_last, beat_user, user6;
  logic [255:0] waiting, begun, beat_data;
  logic [31:0] keep6, beat_keep;

  always_comb begin
    for (int i = 0; i < 32; i++) begin
      case (what5[2*i+:2])
        WAITED:  begun[8*i+:8] = waiting[8*i+:8];
        LOW:     begun[8*i+:8] = tags5[7:0];
        HIGH:    begun[8*i+:8] = tags5[15:8];
        BODY:    begun[8*i+:8] = body5[8*i+:8];
      endcase
    end
  end

  assign twice = twice5 && (last5 || !fault_twice);

  assign beat_data  = apart ? waiting : begun;
  assign beat_last  = state == ENDING || (state == CHUNK && last5 && !over5);
  assign beat_valid = state == ENDING || (v5 && (state == SECOND || over5 || last5));
  assign beat_keep  = state == ENDING ? keep6 : beat_last ? keep5 : '1;
  assign beat_user  = state == ENDING ? user6 : user5;

  // The chunk is done with: it goes into the beats, or begins the next frame while the last beat of
  // one leaves.
  assign take5 = v5 && go && (state == CHUNK ? !twice : state == SECOND || fresh5);

  always_comb begin
    case (state)
      CHUNK: state_d = !v5 ? CHUNK : twice ? SECOND : over5 && last5 ? ENDING : CHUNK;
      // A chunk that completes two beats stays until both have left.
      SECOND: state_d = last5 ? ENDING : CHUNK;
      default: state_d = CHUNK;
    endcase
  end

  always_ff @(posedge clk) begin
    if (go) begin
      state <= state_d;
      apart <= state_d != CHUNK;
      if (v5 || apart) begin
        waiting <= (apart ? state == SECOND : over5) ? body5 : begun;
        // Tags that stand at the border of two beats.
        if (!apart && over5 && tagged5) begin
          if (full5) waiting[15:0] <= tags5;
          if (almost5 && !fault_tags_cut) waiting[7:0] <= tags5[15:8];
        end
      end
      if (state != ENDING) begin
        keep6 <= keep5;
        user6 <= user5;
      end
    end
    if (rst) begin
      state <= CHUNK;
      apart <= 1'b0;
    end
  end

  gw_slice #(
      .WIDTH(256 + 32 + 2)
  ) slice (
      .clk(clk),
      .rst(rst),
      .s_axis({beat_data, beat_keep, beat_last, beat_user}),
      .s_axis_tvalid(beat_valid),
      .s_axis_tready(go),
      .m_axis({m_axis_tdata, m_axis_tkeep, m_axis_tlast, m_axis_tuser}),
      .m_axis_tvalid(m_axis_tvalid),
      .m_axis_tready(m_axis_tready)
  );

endmodule
