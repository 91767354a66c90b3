//! The suite of the verb contract: what `farsight_fabric` promises, asked of a provider.
//!
//! Invariant: a test names no provider. What a provider may choose is asked of its `Guarantees`; what it does
//! not promise is not tested.
//!
//! A provider joins by implementing [`FabricUnderTest`] and naming it to
//! [`fabric_suite!`](crate::fabric_suite).

pub mod atomics;
pub mod bounds;
pub mod calls;
pub mod chained;
pub mod filtered;
pub mod harness;
pub mod later;
pub mod life;
pub mod meters;
pub mod pool;
pub mod port;
pub mod reads;
pub mod shm;
pub mod sim;
pub mod slow;
pub mod tcp;
pub mod tearing;
pub mod verbs;
pub mod withdraw;

use farsight_fabric::{Connection, FabricError, Host, PARKED_MAX};

/// A provider with one address at which a server may listen.
pub trait FabricUnderTest {
    /// Its server.
    type Host: Host + 'static;
    /// Its client.
    type Connection: Connection;

    /// A server at the address, of this format version. There is at most one at a time.
    fn listen(&self, format_version: u32) -> Self::Host;

    /// A client of this format version.
    ///
    /// # Errors
    /// As the provider's connecting.
    fn connect(&self, format_version: u32) -> Result<Self::Connection, FabricError>;

    /// How many of so many rounds a test that races does: fewer where a verb takes long.
    fn rounds(&self, usual: usize) -> usize {
        usual
    }

    /// Calls of one queue that a port parks at most.
    fn parked_max(&self) -> usize {
        PARKED_MAX
    }

    /// True if queues take memory of the server's process.
    fn queues_take_memory(&self) -> bool {
        true
    }

    /// How many of so many pairs a test of an engine puts into a table, or asks for at once.
    fn pairs(&self, usual: usize) -> usize {
        usual
    }
}

/// A subject whose clients find others of its fabric by a URL.
pub trait HasUrl {
    /// Its address.
    fn url(&self) -> String;
}

/// Instantiates every test of the suite for the subject that `$make` makes anew for each; where the subject
/// needs what not every machine has, if `$ready`.
#[macro_export]
macro_rules! fabric_suite {
    ($make:expr) => {
        $crate::fabric_suite!($make, if true);
    };
    ($make:expr, if $ready:expr) => {
        $crate::fabric_suite!(@tests $make, $ready;
            reads: read_sees_what_the_server_wrote, read_of_many_lines, reads_of_a_full_batch,
                a_read_alone_is_a_batch_of_one, a_slot_may_be_posted_again, line_being_written_comes_back_odd,
                write_is_seen_by_server_and_reader, the_lane_reads;
            filtered: filtered_reads_bring_what_is_wanted, filtered_reads_are_refused_as_reads_are,
                results_are_taken_in_the_order_of_posting;
            chained: chains_fetch_what_their_reads_would, chains_see_lines_being_written,
                chains_are_refused_as_reads_are, a_part_of_a_read_is_the_wholes;
            tearing: stamped_lines_do_not_tear, plain_words_do_not_tear, writes_stay_in_order;
            atomics: compare_swap_yields_what_it_found, fetch_add_counts_every_addition,
                read_follows_atomic;
            bounds: read_past_the_end_kills_the_queue, read_far_past_the_end_is_refused,
                misaligned_addresses_are_refused, write_past_the_end_is_refused,
                read_only_region_refuses_changes, verbs_before_a_refused_one_complete,
                unknown_region_is_named;
            calls: echo, many_in_flight, longest_message, too_long_is_refused_before_posting,
                replies_belong_to_their_slots, call_wakes_a_sleeping_server, slow_call_sleeps_the_client,
                late_reply_to_a_reposted_slot_is_dropped, large_replies_flow_through,
                reads_go_on_beside_calls, two_queues_do_not_mix, the_lane_calls;
            later: parked_calls_are_answered_in_any_order, a_parked_call_of_each_length,
                parked_calls_are_bounded, parked_replies_find_room,
                a_newcomer_gets_no_answer_of_the_one_before,
                a_queue_that_ends_takes_its_parked_calls_along,
                a_client_with_parked_calls_departs_at_once, a_parked_call_may_be_given_up,
                peer_death_ends_a_parked_call, others_are_served_beside_parked_calls,
                parked_calls_let_the_port_sleep;
            life: peer_death_ends_a_call, peer_death_ends_reads, closing_ends_the_queues,
                restart_is_another_epoch, other_format_is_refused_by_name, clients_are_counted,
                fenced_client_is_cut_off, nothing_changes_after_a_fence,
                nothing_changes_after_a_departure, fencing_nobody_succeeds,
                wait_ends_in_time, queues_are_opened_within_their_memory,
                wake_ends_the_servers_sleep, queues_of_a_process_have_one_clock;
            withdraw: verbs_of_a_withdrawn_region_say_so, what_was_posted_before_comes_or_fails_by_name,
                nobody_attaches_what_is_withdrawn, detached_regions_are_unknown,
                detaching_forgets_what_was_posted, withdrawals_race_reads, numbers_are_heard_by_all,
                numbers_only_grow;
            meters: a_batch_is_counted_at_its_doorbell, refused_verbs_are_not_counted;
        );
    };
    (@tests $make:expr, $ready:expr; $($group:ident: $($test:ident),+;)+) => {
        $($(
            #[test]
            fn $test() {
                if $ready {
                    $crate::fabric::$group::$test(&$make);
                }
            }
        )+)+
    };
}
