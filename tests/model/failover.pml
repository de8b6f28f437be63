/* A replica that is behind: it has what was there when it was copied, and becomes the master. With SPLIT the old one is
 * cut off and goes on: until then any step may be taken at either, and the two clocks know nothing of each other. */

#ifdef FAILOVER
bit s_there, s_e_marks, s_over, s_back, s_ttl, s_marks, s_e_overtaken, s_in_grace;
byte s_e_token, s_e_nonce, s_e_gen, s_number, s_claim, s_claim_number, s_token, s_nonce, s_ticket, s_gen, s_hard,
  s_ended_by, s_overtaken, s_overtaken_hard, s_informed, s_stored, s_newest_nonce, s_newest_token, s_highest;
mtype s_state;

#ifdef SPLIT
byte s_clock;
hidden byte t;
#define SWAP(a, b) t = a; a = b; b = t

inline go_to_the_other() {
  SWAP(e_there, s_there); SWAP(e_marks, s_e_marks); SWAP(r_over, s_over); SWAP(r_back, s_back); SWAP(r_ttl, s_ttl);
  SWAP(r_marks, s_marks); SWAP(e_overtaken, s_e_overtaken); SWAP(in_grace, s_in_grace); SWAP(e_token, s_e_token);
  SWAP(e_nonce, s_e_nonce); SWAP(e_gen, s_e_gen); SWAP(r_number, s_number); SWAP(r_claim, s_claim);
  SWAP(r_claim_number, s_claim_number); SWAP(r_token, s_token); SWAP(r_nonce, s_nonce); SWAP(r_ticket, s_ticket);
  SWAP(r_gen, s_gen); SWAP(r_hard, s_hard); SWAP(r_ended_by, s_ended_by); SWAP(overtaken, s_overtaken);
  SWAP(overtaken_hard, s_overtaken_hard); SWAP(informed, s_informed); SWAP(stored, s_stored);
  SWAP(newest_nonce, s_newest_nonce); SWAP(newest_token, s_newest_token); SWAP(highest, s_highest);
  SWAP(r_state, s_state); SWAP(clock, s_clock)
}
#endif

proctype Failover() {
  d_step {
    s_there = e_there; s_e_marks = e_marks; s_over = r_over; s_back = r_back; s_ttl = r_ttl; s_marks = r_marks;
    s_e_overtaken = e_overtaken; s_in_grace = in_grace; s_e_token = e_token; s_e_nonce = e_nonce; s_e_gen = e_gen;
    s_number = r_number; s_claim = r_claim; s_claim_number = r_claim_number; s_token = r_token; s_nonce = r_nonce;
    s_ticket = r_ticket; s_gen = r_gen; s_hard = r_hard; s_ended_by = r_ended_by;
    s_overtaken = overtaken; s_overtaken_hard = overtaken_hard; s_informed = informed; s_stored = stored;
    s_newest_nonce = newest_nonce; s_newest_token = newest_token; s_highest = highest; s_state = r_state;
    printf("replica|copied\n")
  }
#ifdef SPLIT
  d_step { s_clock = clock; go_to_the_other(); printf("replica|another master\n") }
  d_step { go_to_the_other(); printf("replica|at the old master\n") }
#endif
  d_step {
    /* What the new master does not know of has not been: the promises hold for the history that survives. */
    e_there = s_there; e_marks = s_e_marks; r_over = s_over; r_back = s_back; r_ttl = s_ttl; r_marks = s_marks;
    e_overtaken = s_e_overtaken; in_grace = s_in_grace; e_token = s_e_token; e_nonce = s_e_nonce; e_gen = s_e_gen;
    r_number = s_number; r_claim = s_claim; r_claim_number = s_claim_number; r_token = s_token; r_nonce = s_nonce;
    r_ticket = s_ticket; r_gen = s_gen; r_hard = s_hard; r_ended_by = s_ended_by;
    overtaken = s_overtaken; overtaken_hard = s_overtaken_hard; informed = s_informed; stored = s_stored;
    newest_nonce = s_newest_nonce; newest_token = s_newest_token; highest = s_highest; r_state = s_state;
#ifdef SPLIT
    clock = s_clock;
#endif
    printf("replica|master\n");
    must(!e_overtaken || e_gen > e_token, 3)
  }
}
#endif
