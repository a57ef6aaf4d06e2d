//! Which node images clusters go to (`behaviour.md` A4, D2, E4).

use flotta_engine::{
    Event, Input, Plan, Work,
    run::{Part, State, Why},
    upgrade::{Needs, Target},
};
use flotta_model::{Cluster, Goal, ImageSelection, NodeImage, Pool, Provisioning, Step, UpgradeType};

use crate::bench::{Bench, OLD, TARGET, member, old_cluster, v};

const FAMILY: &str = "AKSUbuntu-2204gen2containerd";

/// An image of October 2025.
fn image(day: u32) -> NodeImage {
    format!("{FAMILY}-202510.{day:02}.0").parse().expect("image")
}

fn parse(text: &str) -> NodeImage {
    text.parse().expect(text)
}

fn goal(images: ImageSelection) -> Goal {
    Goal::new(UpgradeType::NodeImageOnly, None, Some(images)).expect("goal")
}

fn custom(images: &[NodeImage]) -> Goal {
    goal(ImageSelection::Custom(images.to_vec()))
}

fn full(images: ImageSelection) -> Goal {
    Goal::new(UpgradeType::Full, Some(v(TARGET).into()), Some(images)).expect("goal")
}

/// A pool on the image of a day, in a region whose newest is that of another, with what can be pinned.
fn pool(own: u32, newest: u32, offered: &[u32]) -> Pool {
    let offered_images = offered.iter().map(|day| image(*day)).collect();
    let cluster = old_cluster().pools.remove(0);
    Pool { image: Some(image(own)), latest_image: Some(image(newest)), offered_images, ..cluster }
}

fn cluster(pools: &[Pool]) -> Cluster {
    let named = |(number, pool): (usize, &Pool)| Pool { name: format!("p{number}"), ..pool.clone() };
    Cluster { pools: pools.iter().enumerate().map(named).collect(), ..old_cluster() }
}

/// What a cluster needs on 5 January 2026, in few words: `p0 pinned 12.0`, `hold NodeImageTooOld`.
fn needs(goal: &Goal, images: &[NodeImage], cluster: &Cluster) -> String {
    let version = goal.version().and_then(|target| target.exact());
    let now = "2026-01-05T08:00:00Z".parse().expect("time");
    match (Target { goal, version, offer: None, images: Some(images), now, automatic: false }).needs(cluster) {
        Needs::Steps(steps) => steps.iter().map(step).collect::<Vec<_>>().join(", "),
        Needs::Nothing(why) => format!("nothing: {why}"),
        Needs::Hold(hold) => format!("hold {}", hold.code()),
        Needs::Never(fault) => format!("never {}: {}", fault.code, fault.message),
        Needs::Unfit { why, .. } => format!("unfit: {why}"),
    }
}

fn step(step: &Step) -> String {
    let short = |image: &NodeImage| image.as_str().rsplit("202510.").next().expect("version").to_owned();
    match step {
        Step::Cluster { pools, images, .. } => {
            let shown = |pool: &String| match images.get(pool) {
                Some(image) => format!(" {pool} pinned {}", short(image)),
                None => format!(" {pool}"),
            };
            format!("cluster{}", pools.iter().map(shown).collect::<String>())
        }
        Step::ControlPlane { .. } => "control plane".into(),
        Step::PoolVersion { pool, image: None, .. } => format!("{pool} version"),
        Step::PoolVersion { pool, image: Some(image), .. } => format!("{pool} version pinned {}", short(image)),
        Step::PoolImage { pool, image } => format!("{pool} newest {}", short(image)),
        Step::PoolPinned { pool, image } => format!("{pool} pinned {}", short(image)),
    }
}

/// What pools need in a run to the image of a day.
#[track_caller]
fn check(goal: &Goal, wanted: u32, pools: &[Pool], expect: &str) {
    let answer = needs(goal, &[image(wanted)], &cluster(pools));
    let said = answer == expect || (expect.ends_with('…') && answer.contains(expect.trim_end_matches('…')));
    assert!(said, "expected '{expect}', got '{answer}'");
}

/// A cluster's region, its pool's image, the newest there, and what can be pinned.
fn put(bench: &mut Bench, member: &str, region: &str, days: (u32, u32), offered: &[u32]) {
    let cluster = bench.cluster(member);
    cluster.location = region.into();
    let pool = &mut cluster.pools[0];
    (pool.image, pool.latest_image) = (Some(image(days.0)), Some(image(days.1)));
    pool.offered_images = offered.iter().map(|day| image(*day)).collect();
}

/// Two members, in regions whose newest images are of different days.
fn two_regions(goal: Goal, offered: [&[u32]; 2]) -> Bench {
    let mut bench = Bench::with_goal(goal, &["s / a mc=2 x2"]);
    put(&mut bench, "a-0", "westeurope", (1, 12), offered[0]);
    put(&mut bench, "a-1", "eastus", (1, 17), offered[1]);
    bench
}

#[test]
fn a4_consistent_is_chosen_when_the_run_starts_and_kept_for_its_retries() {
    let mut bench = two_regions(goal(ImageSelection::Consistent), [&[1, 12], &[1, 12, 17]]);
    assert_eq!((bench.run.work(), bench.run.selected_images()), (vec![], None));
    bench.start();
    bench.check("Pending; s Pending; a Pending NN");
    assert_eq!((bench.run.work(), bench.why(Part::Run)), (vec![Work::ResolveImages], vec![Why::ResolvingImages]));
    assert_eq!(bench.why_member("a-0"), Why::ResolvingImages);
    assert!(bench.read_images().contains(&Event::ImagesSelected(vec![image(12)])));
    bench.check("Running; s Running; a Running RR");
    put(&mut bench, "a-1", "eastus", (1, 19), &[17, 19]);
    assert_eq!(bench.read_images(), [], "it is chosen once");
    bench.fail("a-0");
    bench.fail("a-1");
    bench.start();
    assert_eq!(bench.run.selected_images(), Some(&[image(12)][..]));
    assert!(!bench.run.work().contains(&Work::ResolveImages));
}

#[test]
fn a4_a_run_whose_regions_disagree_is_pending_before_anyone_moves_and_says_what_each_has() {
    let mut bench = two_regions(goal(ImageSelection::Consistent), [&[], &[]]);
    bench.start();
    bench.read_images();
    bench.check("Pending; s Pending; a Pending NN");
    let reasons = bench.run.waiting_on(Part::Run, bench.now);
    let Why::ImagesApart(apart) = &reasons[0].why else { panic!("{reasons:?}") };
    assert_eq!(apart[0].to_string(), format!("{FAMILY}: eastus has 202510.17.0, westeurope has 202510.12.0"));
    assert_eq!(reasons[0].until, Some(bench.now + jiff::SignedDuration::from_mins(10)));
    assert_eq!((bench.why_member("a-1"), bench.run.work()), (reasons[0].why.clone(), vec![Work::ResolveImages]));
    assert_eq!(bench.read_images(), [], "no news");
    bench.advance(700);
    assert_eq!(
        bench.run.waiting_on(Part::Run, bench.now)[0].until,
        reasons[0].until.map(|at| at + jiff::SignedDuration::from_mins(10))
    );
    put(&mut bench, "a-0", "westeurope", (1, 17), &[]);
    bench.read_images();
    bench.check("Running; s Running; a Running RR");
    assert_eq!(bench.run.selected_images(), Some(&[image(17)][..]));
}

#[test]
fn a4_accept_newer_takes_the_oldest_of_what_is_newest() {
    let mut bench = two_regions(goal(ImageSelection::Consistent).accepting_newer(true), [&[], &[]]);
    bench.start();
    assert!(bench.read_images().contains(&Event::ImagesSelected(vec![image(12)])));
    bench.check("Running; s Running; a Running RR");
}

#[test]
fn a4_images_are_known_without_a_look_where_they_are_given() {
    let custom = Bench::with_goal(goal(ImageSelection::Custom(vec![image(12)])), &["s / a x1"]);
    assert_eq!(custom.run.selected_images(), Some(&[image(12)][..]), "they are shown before the start");
    let plan = Plan::resolve(goal(ImageSelection::Consistent), None, &[member("a-0", None, &[])]).expect("plan");
    let mut again = Bench::of_plan(Plan { images: Some(vec![image(17)]), ..plan });
    for bench in [&mut again, &mut { custom }] {
        bench.start();
        assert_eq!(bench.run.state(), State::Running);
    }
    assert_eq!(again.run.selected_images(), Some(&[image(17)][..]), "those of the run before");
    let mut latest = Bench::with_goal(goal(ImageSelection::Latest), &["s / a x1"]);
    latest.start();
    assert_eq!(latest.tell(Input::ImagesResolved { pools: vec![] }), []);
    assert_eq!(latest.run.selected_images(), None);
    let version = Some("1.33.2".parse().expect("version"));
    let plane = Goal::new(UpgradeType::ControlPlaneOnly, version, Some(ImageSelection::Consistent)).expect("goal");
    let mut plane = Bench::with_goal(plane, &["s / a x1"]);
    plane.start();
    assert_eq!(plane.run.state(), State::Running, "a control plane has no images");
}

#[test]
fn a4_a_pool_goes_to_the_image_that_was_chosen_and_is_never_moved_back() {
    let goal = custom(&[image(12)]);
    check(&goal, 12, &[pool(1, 17, &[1, 12, 17])], "p0 pinned 12.0");
    check(&goal, 12, &[pool(1, 12, &[])], "p0 newest 12.0");
    for ahead in [12, 17] {
        check(
            &goal,
            12,
            &[pool(ahead, 17, &[12, 17])],
            &format!("nothing: Node pool 'p0' is at or ahead of node image {}.", image(12)),
        );
    }
    check(&goal, 12, &[pool(17, 17, &[12, 17]), pool(5, 17, &[12, 17])], "p1 pinned 12.0");
}

#[test]
fn b2_an_image_that_its_region_lacks_is_waited_for() {
    let goal = custom(&[image(12)]);
    check(&goal, 12, &[pool(1, 5, &[1, 5])], "hold NodeImageNotAvailable");
    check(&goal, 12, &[pool(1, 5, &[])], "hold NodeImageNotAvailable");
    let untold = Pool { latest_image: None, ..pool(1, 5, &[]) };
    check(&goal, 12, &[pool(5, 17, &[12, 17]), untold], "hold NodeImageNotAvailable");
}

#[test]
fn choice_where_images_cannot_be_pinned_a_region_that_moved_on_fails_its_members_unless_newer_will_do() {
    let goal = custom(&[image(12)]);
    check(&goal, 12, &[pool(1, 17, &[])], "never NodeImageOvertaken: node pool 'p0' cannot get…");
    check(&goal, 12, &[pool(1, 17, &[5, 17])], "never NodeImageOvertaken…");
    check(&goal, 12, &[pool(1, 5, &[]), pool(1, 17, &[])], "never NodeImageOvertaken…");
    for way_out in ["westeurope has moved on to 202510.17.0", "Latest", "acceptNewer"] {
        check(&goal, 12, &[pool(1, 17, &[])], &format!("{way_out}…"));
    }
    let accepts = goal.accepting_newer(true);
    check(&accepts, 12, &[pool(1, 17, &[])], "p0 newest 17.0");
    check(&accepts, 12, &[pool(1, 17, &[5, 17])], "p0 pinned 17.0");
    check(&accepts, 12, &[pool(1, 17, &[12, 17])], "p0 pinned 12.0");
    check(&accepts, 12, &[pool(1, 5, &[])], "hold NodeImageNotAvailable");
}

#[test]
fn e60_a_pool_made_from_a_snapshot_is_moved_to_the_image_of_the_run_but_not_by_latest() {
    let snapshot = |pool| Pool { from_snapshot: true, ..pool };
    for goal in [custom(&[image(12)]), goal(ImageSelection::Consistent)] {
        check(&goal, 12, &[snapshot(pool(5, 17, &[12, 17]))], "p0 pinned 12.0");
        check(&goal, 17, &[snapshot(pool(5, 17, &[12, 17]))], "p0 pinned 17.0");
        check(&goal, 12, &[snapshot(pool(12, 17, &[12, 17]))], "nothing: Node pool 'p0' is at or ahead…");
        check(&goal, 12, &[snapshot(pool(5, 12, &[]))], "never NodePoolFromSnapshot…");
        check(&goal, 12, &[snapshot(pool(12, 17, &[]))], "nothing…");
    }
    check(&full(ImageSelection::Consistent), 12, &[snapshot(pool(12, 17, &[]))], "cluster p0");
    check(&full(ImageSelection::Consistent), 12, &[snapshot(pool(5, 12, &[]))], "never NodePoolFromSnapshot…");
}

#[test]
fn e63_an_image_that_nodes_cannot_be_relied_on_to_be_made_from_is_not_moved_to() {
    let goal = custom(&[image(1)]);
    let old = |pool: Pool| Pool { image: Some(parse("AKSUbuntu-2204gen2containerd-202509.01.0")), ..pool };
    check(&goal, 1, &[old(pool(1, 17, &[1, 17]))], "hold NodeImageTooOld");
    check(&goal, 1, &[old(pool(1, 1, &[]))], "hold NodeImageTooOld");
    check(&goal, 1, &[pool(1, 17, &[1, 17])], "nothing…");
    let mut bench = Bench::with_goal(custom(&[image(8)]), &["s / a x2"]);
    put(&mut bench, "a-0", "westeurope", (5, 17), &[8, 17]);
    bench.start();
    bench.look("a-0");
    let pledge = bench.run.member(0).pledge().expect("89 days are few enough");
    assert_eq!(pledge.step, Step::PoolPinned { pool: "pool".into(), image: image(8) });
    put(&mut bench, "a-1", "westeurope", (5, 17), &[8, 17]);
    bench.advance(2 * 24 * 3600);
    bench.finish("a-0");
    bench.look("a-1");
    bench.check("Pending; s Pending; a Pending CP");
    assert!(bench.message("a-1").contains("was published 91 days ago"), "{}", bench.message("a-1"));
}

#[test]
fn a4_pools_of_a_family_without_an_image_are_left_alone_and_said_to_be() {
    let other = |own: &str| Pool { image: Some(parse(own)), latest_image: Some(parse(own)), ..pool(1, 1, &[]) };
    let mariner = || other("AKSAzureLinux-V2gen2-202509.26.0");
    let goal = custom(&[image(12)]);
    check(
        &goal,
        12,
        &[mariner()],
        "unfit: node pool 'p0' is not upgraded: the run has no version for its image family AKSAzureLinux-V2gen2",
    );
    check(&goal, 12, &[mariner(), pool(5, 17, &[12])], "p1 pinned 12.0");
    check(
        &goal,
        12,
        &[mariner(), pool(12, 17, &[12])],
        "nothing: Node pool 'p0' is not upgraded: the run has no version…",
    );
    let consistent = self::goal(ImageSelection::Consistent);
    check(
        &consistent,
        12,
        &[mariner()],
        "unfit: node pool 'p0' is not upgraded: its image family AKSAzureLinux-V2gen2 appeared after…",
    );
    let mut bench = Bench::with_goal(goal, &["s ms=1 / a x1"]);
    bench.cluster("a-0").pools = vec![mariner()];
    bench.start();
    bench.look("a-0");
    assert!(bench.message("a-0").contains("no version for its image family"), "{}", bench.message("a-0"));
    assert_eq!((bench.run.member_state(0), bench.run.counts().there), (State::Skipped, 0));
}

#[test]
fn a4_a_member_that_completes_says_what_became_of_each_pool() {
    let mut bench = Bench::with_goal(custom(&[image(12)]), &["s / a x1"]);
    let windows = "AKSWindows-2022-containerd-20348.3207.250214";
    put(&mut bench, "a-0", "westeurope", (5, 17), &[12, 17]);
    let other = Pool { name: "win".into(), image: Some(parse(windows)), ..pool(1, 1, &[]) };
    bench.cluster("a-0").pools.push(other);
    bench.start();
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
    let message = bench.message("a-0");
    assert!(
        message.contains("'pool' is at or ahead of node image") && message.contains("'win' is not upgraded"),
        "{message}"
    );
}

#[test]
fn a4_a_full_upgrade_brings_the_images_of_the_run_with_the_version() {
    let goal = full(ImageSelection::Consistent);
    check(
        &goal,
        12,
        &[pool(5, 17, &[12, 17]), pool(12, 17, &[12, 17]), pool(17, 17, &[12, 17])],
        "cluster p0 pinned 12.0 p1 pinned 12.0 p2 pinned 17.0",
    );
    check(&goal, 12, &[pool(5, 12, &[]), pool(17, 19, &[])], "cluster p0 p1");
    check(&goal, 12, &[pool(12, 17, &[])], "never NodeImageOvertaken…");
    check(&goal, 12, &[pool(5, 5, &[])], "hold NodeImageNotAvailable");
    check(&goal.clone().accepting_newer(true), 12, &[pool(5, 17, &[])], "cluster p0");
    let mut untold = pool(5, 17, &[]);
    untold.image = None;
    check(&goal, 12, &[untold], "cluster p0");
    let left_out = Pool { image: Some(parse("AKSAzureLinux-V2gen2-202509.26.0")), ..pool(1, 1, &[]) };
    check(&goal, 12, &[left_out.clone(), pool(5, 17, &[12, 17])], "cluster p1 pinned 12.0");
    check(&goal, 12, std::slice::from_ref(&left_out), "unfit…");
    let at_target = |pool: Pool| Pool { version: v(TARGET), ..pool };
    let mut behind =
        cluster(&[at_target(pool(12, 17, &[12])), pool(5, 17, &[12, 17]), at_target(pool(5, 17, &[12])), left_out]);
    behind.version = v(TARGET);
    assert_eq!(needs(&goal, &[image(12)], &behind), "p1 version pinned 12.0, p2 pinned 12.0");
    behind.pools.retain(|pool| pool.name == "p0" || pool.name == "p3");
    behind.pools[1].provisioning = Provisioning::Failed;
    let answer = needs(&goal, &[image(12)], &behind);
    assert!(
        answer.starts_with("nothing: ") && answer.contains("'p3' is not upgraded") && answer.contains("Every other"),
        "{answer}"
    );
    assert_eq!(behind.pools[1].version, v(OLD), "it stays behind, and that is said");
    let plane = Goal::new(UpgradeType::ControlPlaneOnly, Some(v(TARGET).into()), Some(ImageSelection::Consistent))
        .expect("goal");
    check(&plane, 12, &[pool(12, 17, &[])], "control plane");
}

#[test]
fn aks_wire_3_a_pool_that_did_not_come_to_rest_is_sent_its_own_image_again() {
    let failed = |pool| Pool { provisioning: Provisioning::Failed, ..pool };
    let goal = custom(&[image(12)]);
    check(&goal, 12, &[failed(pool(17, 19, &[12, 17, 19]))], "p0 pinned 17.0");
    check(&goal, 12, &[failed(pool(12, 12, &[]))], "p0 newest 12.0");
    check(&goal, 12, &[failed(pool(12, 17, &[]))], "never NodeImageOvertaken…");
    check(&goal, 12, &[Pool { lagging_nodes: 2, ..pool(12, 17, &[12, 17]) }], "p0 pinned 12.0");
}

/// The goal of a SecurityPatch channel: an image, and the date of the patches on it.
fn patched(base: u32, date: &str) -> (Goal, NodeImage) {
    let wanted = image(base).with_patch(date.parse().expect(date));
    (custom(std::slice::from_ref(&wanted)), wanted)
}

#[test]
fn a9_security_patches_are_put_on_live_where_that_is_possible() {
    let (goal, wanted) = patched(12, "2025-12-01");
    let live = |own: u32, date: &str| {
        let patch = image(own).with_patch(date.parse().expect(date));
        Pool { live_patch: Some(patch), ..pool(own, 12, &[5, 12]) }
    };
    let one = |pool: Pool| needs(&goal, std::slice::from_ref(&wanted), &cluster(&[pool]));
    assert_eq!(one(live(12, "2025-12-01")), "p0 pinned 12.0-2025.12.01");
    assert_eq!(one(live(5, "2025-12-03")), "p0 pinned 05.0-2025.12.03", "its own image, with what is newest");
    assert_eq!(one(live(5, "2025-11-20")), "p0 pinned 12.0", "not far enough: the image itself");
    let mut bench = Bench::with_goal(goal.clone(), &["s / a x1"]);
    bench.cluster("a-0").pools = vec![Pool { name: "pool".into(), ..live(12, "2025-12-01") }];
    bench.start();
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
    assert!(bench.message("a-0").contains("by a live security patch"), "{}", bench.message("a-0"));
}

#[test]
fn a9_without_a_live_patch_pools_get_a_patched_image_and_windows_none() {
    let (goal, wanted) = patched(12, "2025-10-15");
    let one = |pool: Pool| needs(&goal, std::slice::from_ref(&wanted), &cluster(&[pool]));
    assert_eq!(one(pool(5, 17, &[12, 17, 19])), "p0 pinned 19.0", "the newest that has the patches");
    assert_eq!(one(pool(5, 17, &[])), "p0 newest 17.0");
    assert_eq!(one(pool(5, 12, &[])), "p0 newest 12.0", "the best there is");
    assert_eq!(one(pool(1, 5, &[])), "hold NodeImageNotAvailable", "its region has yet to get the image");
    let there = one(pool(17, 19, &[17, 19]));
    assert!(there.contains("has the security patches of 2025-10-15 by a patched node image"), "{there}");
    let windows = Pool { image: Some(parse("AKSWindows-2022-containerd-20348.3207.250214")), ..pool(1, 1, &[]) };
    assert_eq!(one(windows), "unfit: node pool 'p0' runs Windows, and security patches are for Linux");
}

#[test]
fn e61_where_there_is_no_newer_security_patch_that_is_said() {
    let (goal, wanted) = patched(12, "2025-12-01");
    for offered in [&[][..], &[5, 12]] {
        let answer = needs(&goal, std::slice::from_ref(&wanted), &cluster(&[pool(12, 12, offered)]));
        assert!(answer.starts_with("nothing: ") && answer.contains("no newer security patch"), "{answer}");
    }
    let mut bench = Bench::with_goal(goal, &["s / a x1"]);
    put(&mut bench, "a-0", "westeurope", (5, 12), &[]);
    bench.start();
    bench.finish("a-0");
    bench.check("Completed; s Completed; a Completed C");
    let message = bench.message("a-0");
    assert!(message.contains("patched node image") && message.contains("no newer security patch"), "{message}");
}

#[test]
fn e58_a_custom_image_is_pinned_and_none_is_taken_back() {
    let mut bench = Bench::with_goal(custom(&[image(12)]), &["s / a mc=2 x2"]);
    put(&mut bench, "a-0", "westeurope", (5, 17), &[12, 17]);
    put(&mut bench, "a-1", "westeurope", (17, 17), &[12, 17]);
    bench.start();
    bench.finish("a-0");
    bench.finish("a-1");
    bench.check("Completed; s Completed; a Completed CS");
    let images: Vec<_> = bench.clusters.iter().map(|cluster| cluster.pools[0].image.clone()).collect();
    assert_eq!(images, [Some(image(12)), Some(image(17))]);
}

#[test]
fn e51_latest_is_what_the_region_has_when_the_window_opens() {
    let mut bench = Bench::with_goal(goal(ImageSelection::Latest), &["s / a x1"]);
    put(&mut bench, "a-0", "westeurope", (5, 12), &[]);
    bench.window("a-0", "22:00", 4);
    bench.start();
    bench.check("Pending; s Pending; a Pending P");
    put(&mut bench, "a-0", "westeurope", (5, 17), &[]);
    bench.advance(14 * 3600);
    bench.look("a-0");
    let pledge = bench.run.member(0).pledge().expect("the window is open");
    assert_eq!(pledge.step, Step::PoolImage { pool: "pool".into(), image: image(17) }, "and the journal keeps it");
}
