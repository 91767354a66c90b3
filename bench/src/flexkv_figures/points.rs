//! The points of each figure.

use farsight::CachePolicy;

use super::{
    FlexFigure, FlexPoint, FlexTestbed, Keeping, PointRun, Way, distribution_of, value_bytes, zipfian,
};
use crate::simulated::{Offloaded, Proxying, SimulatedPlan};
use crate::verb_mixes::{System, VerbMixPlan};
use crate::workload::{Distribution, UpdateShare, Workload, ZIPFIAN_THETA_DEFAULT};

/// The workloads of the evaluation; B is YCSB's own.
const WORKLOADS: [Workload; 4] = [Workload::A, Workload::BStandard, Workload::C, Workload::D];
/// Those in which compute nodes write for others.
const WRITTEN: [Workload; 2] = [Workload::A, Workload::BStandard];
/// Client threads of a compute node, of ten.
const THREADS_OF_TEN: [usize; 3] = [1, 5, 10];
/// Shares of updates, in tenths.
const UPDATE_TENTHS: [u8; 4] = [0, 2, 5, 10];
const PAIR_BYTES: [usize; 4] = [128, 256, 512, 1_024];
/// Memory nodes; all others of as many nodes are compute nodes.
const MEMORY_NODES: [usize; 4] = [3, 5, 7, 10];
const MEMORY_MB: [u64; 4] = [0, 32, 64, 128];
const OFFLOADED_PERCENT: [u8; 5] = [0, 20, 50, 80, 100];
const PROXY_THREADS: [usize; 3] = [1, 2, 4];
/// The part of the index that is offloaded before the knob turns.
const OFFLOADED_FIRST: u8 = 20;
/// Seconds of the coordinator for which the first workload of figure 18 runs, and the second one.
const FIRST_S: f64 = 40.0;
const SECOND_S: f64 = 40.0;
/// Its samples, in seconds of the coordinator.
const SAMPLE_S: f64 = 0.5;

/// FlexKV with all that it has.
pub(super) const WHOLE: Way = Way::Proxied(Offloaded::Found, Keeping::Values);
const ENGINES: [Way; 4] = [WHOLE, Way::OneSided, Way::XStoreD, Way::Rolex];

impl Way {
    /// What results call it.
    fn name(self) -> &'static str {
        match self {
            Self::Proxied(..) => "flexkv",
            Self::Owned => "flexkv-op",
            Self::OneSided => "flexkv, one-sided",
            Self::XStoreD => "xstore-d",
            Self::Rolex => "rolex",
        }
    }
}

impl FlexTestbed {
    /// The points of a figure, in the order of its tables.
    #[must_use]
    pub fn points(&self, figure: FlexFigure) -> Vec<FlexPoint> {
        match figure {
            FlexFigure::Clients => self.by_clients(),
            FlexFigure::Latencies => self.latencies(),
            FlexFigure::Updates => self.by_updates(figure, zipfian(), ZIPFIAN_THETA_DEFAULT),
            FlexFigure::UniformUpdates => self.by_updates(figure, Distribution::Uniform, 0.0),
            FlexFigure::Ablation => self.ablation(),
            FlexFigure::Dynamic => self.dynamic(),
            FlexFigure::Balance => self.balance(),
            FlexFigure::ProxyThreads => self.by_proxy_threads(),
            FlexFigure::PairBytes => self.by_pair_bytes(),
            FlexFigure::NodeRatio => self.by_nodes(),
            FlexFigure::Memory => self.by_memory(),
            FlexFigure::OffloadedPart => self.by_offloaded_part(),
            FlexFigure::Hits => self.hits(),
        }
    }

    fn clients(&self) -> f64 {
        (self.compute_nodes * self.client_threads) as f64
    }

    fn by_clients(&self) -> Vec<FlexPoint> {
        let mut threads = THREADS_OF_TEN.map(|threads| (self.client_threads * threads).div_ceil(10)).to_vec();
        threads.dedup();
        let testbeds = threads.into_iter().map(|client_threads| Self { client_threads, ..self.clone() });
        let testbeds: Vec<Self> = testbeds.collect();
        let of =
            |workload| testbeds.iter().flat_map(move |testbed| testbed.rivals(FlexFigure::Clients, workload));
        WORKLOADS.into_iter().flat_map(of).collect()
    }

    /// Everybody with all clients.
    fn rivals(&self, figure: FlexFigure, workload: Workload) -> Vec<FlexPoint> {
        let panel = workload.name();
        let store = |way: Way| {
            let plan = self.store(way, workload, distribution_of(workload));
            store(figure, (panel, way.name()), self.clients(), plan)
        };
        let mix = |system: System| {
            let of = (panel, system);
            verbs(figure, of, self.clients(), self.verbs(system, workload), ZIPFIAN_THETA_DEFAULT)
        };
        ENGINES.into_iter().map(store).chain(System::ALL.into_iter().map(mix)).collect()
    }

    fn latencies(&self) -> Vec<FlexPoint> {
        WORKLOADS.into_iter().flat_map(|workload| self.rivals(FlexFigure::Latencies, workload)).collect()
    }

    fn by_updates(&self, figure: FlexFigure, distribution: Distribution, theta: f64) -> Vec<FlexPoint> {
        let of_share = |tenths| {
            let share = UpdateShare::of_tenths(tenths).expect("no more than ten");
            let (workload, x) = (Workload::Updates(share), f64::from(share.percent()));
            let panel = distribution.name();
            let of_way = move |way: Way| {
                store(figure, (panel, way.name()), x, self.store(way, workload, distribution))
            };
            let mix =
                move |system: System| verbs(figure, (panel, system), x, self.verbs(system, workload), theta);
            ENGINES.into_iter().map(of_way).chain(System::ALL.into_iter().map(mix))
        };
        UPDATE_TENTHS.into_iter().flat_map(of_share).collect()
    }

    fn ablation(&self) -> Vec<FlexPoint> {
        let (first, hottest) = (Offloaded::Numbered(OFFLOADED_FIRST), Offloaded::Hottest(OFFLOADED_FIRST));
        let steps = [
            ("base: addresses", Way::OneSided, CachePolicy::Sieve),
            ("+ proxies, first 20 %", Way::Proxied(first, Keeping::Addresses), CachePolicy::Sieve),
            ("+ hottest 20 %", Way::Proxied(hottest, Keeping::Addresses), CachePolicy::Sieve),
            ("+ kept values", Way::Proxied(hottest, Keeping::Values), CachePolicy::Sieve),
            ("+ knob", WHOLE, CachePolicy::Sieve),
            ("the same, FIFO caches", WHOLE, CachePolicy::Fifo),
            ("flexkv-op", Way::Owned, CachePolicy::Sieve),
        ];
        let of = |workload: Workload| {
            steps.map(|(name, way, cache_policy)| {
                let plan = self.store(way, workload, distribution_of(workload));
                let plan = SimulatedPlan { cache_policy, ..plan };
                store(FlexFigure::Ablation, (workload.name(), name), self.clients(), plan)
            })
        };
        WORKLOADS.into_iter().flat_map(of).collect()
    }

    fn dynamic(&self) -> Vec<FlexPoint> {
        let plan = SimulatedPlan {
            seconds: self.paced(FIRST_S),
            warm_up_seconds: Some(0.0),
            then: Some((Workload::A, self.paced(SECOND_S))),
            sample_seconds: Some(self.paced(SAMPLE_S)),
            ..self.store(WHOLE, Workload::BStandard, zipfian())
        };
        vec![store(FlexFigure::Dynamic, ("b-standard, then a", "flexkv"), self.clients(), plan)]
    }

    fn balance(&self) -> Vec<FlexPoint> {
        let of = |(name, offloaded)| {
            let plan = self.store(Way::Proxied(offloaded, Keeping::Values), Workload::A, zipfian());
            store(FlexFigure::Balance, (Workload::A.name(), name), self.clients(), plan)
        };
        [("by number", Offloaded::Numbered(100)), ("by heat", Offloaded::Hottest(100))].map(of).into()
    }

    fn by_proxy_threads(&self) -> Vec<FlexPoint> {
        let of = |workload: Workload| {
            PROXY_THREADS.map(|threads| {
                let way = Way::Proxied(Offloaded::Hottest(100), Keeping::Values);
                let plan = self.store(way, workload, zipfian());
                let proxying = plan.proxying.map(|proxying| Proxying { threads, ..proxying });
                let plan = SimulatedPlan { proxying, ..plan };
                store(FlexFigure::ProxyThreads, (workload.name(), way.name()), threads as f64, plan)
            })
        };
        WRITTEN.into_iter().flat_map(of).collect()
    }

    fn by_pair_bytes(&self) -> Vec<FlexPoint> {
        let of = |workload: Workload| {
            PAIR_BYTES.into_iter().flat_map(move |bytes| {
                let of_way = move |way: Way| {
                    let plan = self.store(way, workload, zipfian());
                    let value_bytes = value_bytes(plan.engine, bytes);
                    let plan = SimulatedPlan { value_bytes, ..plan };
                    store(FlexFigure::PairBytes, (workload.name(), way.name()), bytes as f64, plan)
                };
                let mix = move |system: System| {
                    let plan = VerbMixPlan { pair_bytes: bytes as u64, ..self.verbs(system, workload) };
                    let of = (workload.name(), system);
                    verbs(FlexFigure::PairBytes, of, bytes as f64, plan, ZIPFIAN_THETA_DEFAULT)
                };
                // A leaf of ROLEX has shorter values.
                [WHOLE, Way::OneSided, Way::XStoreD].into_iter().map(of_way).chain(System::ALL.map(mix))
            })
        };
        [Workload::A, Workload::C].into_iter().flat_map(of).collect()
    }

    fn by_nodes(&self) -> Vec<FlexPoint> {
        let all = self.compute_nodes + self.memory_nodes;
        let testbeds = MEMORY_NODES.into_iter().filter(|memory_nodes| *memory_nodes < all);
        let testbeds: Vec<Self> = testbeds
            .map(|memory_nodes| Self { memory_nodes, compute_nodes: all - memory_nodes, ..self.clone() })
            .collect();
        let of = |workload| {
            testbeds.iter().flat_map(move |testbed| {
                let x = testbed.memory_nodes as f64;
                let points = testbed.rivals(FlexFigure::NodeRatio, workload).into_iter();
                points.map(move |point| FlexPoint { x, ..point })
            })
        };
        WRITTEN.into_iter().flat_map(of).collect()
    }

    fn by_memory(&self) -> Vec<FlexPoint> {
        let of = |workload: Workload| {
            MEMORY_MB.into_iter().flat_map(move |mb| {
                let (bytes, x) = (mb * 1_000_000, mb as f64);
                let of_way = move |way: Way| {
                    let plan = self.store(way, workload, distribution_of(workload));
                    let plan = self.with_memory(plan, way, bytes);
                    store(FlexFigure::Memory, (workload.name(), way.name()), x, plan)
                };
                let mix = move |system: System| {
                    let plan = VerbMixPlan { cache_bytes: bytes, ..self.verbs(system, workload) };
                    verbs(FlexFigure::Memory, (workload.name(), system), x, plan, ZIPFIAN_THETA_DEFAULT)
                };
                [WHOLE, Way::OneSided].into_iter().map(of_way).chain(System::ALL.map(mix))
            })
        };
        [Workload::A, Workload::C].into_iter().flat_map(of).collect()
    }

    fn by_offloaded_part(&self) -> Vec<FlexPoint> {
        let of = |workload: Workload| {
            OFFLOADED_PERCENT.map(|percent| {
                let way = Way::Proxied(Offloaded::Hottest(percent), Keeping::Values);
                let plan = self.store(way, workload, zipfian());
                store(FlexFigure::OffloadedPart, (workload.name(), way.name()), f64::from(percent), plan)
            })
        };
        WRITTEN.into_iter().flat_map(of).collect()
    }

    fn hits(&self) -> Vec<FlexPoint> {
        let alone = Self { batch: 1, ..self.clone() };
        let of = |workload: Workload| {
            let plan = alone.store(WHOLE, workload, distribution_of(workload));
            store(FlexFigure::Hits, (workload.name(), WHOLE.name()), alone.clients(), plan)
        };
        WORKLOADS.into_iter().map(of).collect()
    }
}

fn store(figure: FlexFigure, (panel, system): (&str, &str), x: f64, plan: SimulatedPlan) -> FlexPoint {
    let (panel, system) = (panel.to_owned(), system.to_owned());
    FlexPoint { figure, panel, system, x, run: PointRun::Store(Box::new(plan)) }
}

fn verbs(
    figure: FlexFigure,
    (panel, system): (&str, System),
    x: f64,
    plan: VerbMixPlan,
    theta: f64,
) -> FlexPoint {
    let (panel, system) = (panel.to_owned(), format!("verbs of {}", system.name()));
    FlexPoint { figure, panel, system, x, run: PointRun::Verbs(Box::new(plan), theta) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use farsight_fabric_sim::Profile;

    use super::*;
    use crate::simulated::ProxyPace;

    fn of_paper() -> FlexTestbed {
        FlexTestbed {
            profile: Profile::load("cx3").expect("an own profile"),
            memory_nodes: 3,
            compute_nodes: 20,
            client_threads: 10,
            batch: 8,
            keys: 100_000,
            seconds: 0.004,
            pace: ProxyPace::new(1_000).expect("a pace"),
        }
    }

    #[test]
    fn each_point_has_a_place_of_its_own() {
        for figure in FlexFigure::ALL {
            let points = of_paper().points(figure);
            let places: HashSet<_> =
                points.iter().map(|point| (&point.panel, &point.system, point.x.to_bits())).collect();
            assert!(!points.is_empty() && places.len() == points.len(), "figure {figure}");
            assert_eq!(figure.number().parse(), Ok(figure));
        }
    }

    #[test]
    fn figures_of_one_testbed_share_their_runs() {
        let testbed = of_paper();
        let runs =
            |figure| -> HashSet<String> { testbed.points(figure).iter().map(FlexPoint::identity).collect() };
        let (by_clients, latencies) = (runs(FlexFigure::Clients), runs(FlexFigure::Latencies));
        assert!(latencies.is_subset(&by_clients));
        let ablation = runs(FlexFigure::Ablation);
        assert_eq!(ablation.len(), 28, "five steps, FIFO and FlexKV-OP, of four workloads");
        assert_eq!(ablation.intersection(&by_clients).count(), 8, "the first step and the last one");
    }

    #[test]
    fn memory_is_as_much_a_key_as_the_papers() {
        let plan = of_paper().store(WHOLE, Workload::A, zipfian());
        assert_eq!((plan.cache_bytes, plan.value_cache_bytes), (Some(320_000), Some(320_000)));
        let alone = of_paper().store(Way::OneSided, Workload::A, zipfian());
        assert_eq!((alone.cache_bytes, alone.value_cache_bytes), (Some(640_000), None));
        assert_eq!(plan.value_bytes, 120);
        assert_eq!(of_paper().store(Way::Rolex, Workload::A, zipfian()).cache_bytes, None);
    }
}
