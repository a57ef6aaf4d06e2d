//! AKS's request limits, in domain time.

use serde_json::json;

use crate::cloud::{cloud, with};

#[tokio::test(start_paused = true)]
async fn d5_each_kind_of_call_has_its_bucket() {
    let cloud = cloud(&with("\n").replace("behaviour: { throttling: false }", "behaviour: { durationScale: 0 }")).await;
    let update = json!({"properties": {}});
    for path in ["c1", "c1/agentPools/system"] {
        for _ in 0..20 {
            cloud.put(path, update.clone()).await.expect(200);
        }
        let refused = cloud.put(path, update.clone()).await.expect(429);
        assert_eq!((refused.code(), refused.header("retry-after")), ("Throttled", "60"));
        assert!(refused.message().ends_with("please retry again in 60 seconds"), "{}", refused.message());
    }
    cloud.put("c1/agentPools/win", update.clone()).await.expect(200);
    for _ in 0..60 {
        cloud.get("c1").await.expect(200);
    }
    assert_eq!(cloud.get("c1").await.expect(429).header("retry-after"), "1");
    for _ in 0..60 {
        cloud.get("c1/agentPools").await.expect(200);
    }
    assert_eq!(cloud.get("c1/maintenanceConfigurations").await.expect(429).code(), "Throttled");
    cloud.pass(60).await;
    let started = cloud.put("c1", update.clone()).await.expect(200);
    cloud.put("c1", update).await.expect(429);
    for _ in 0..200 {
        cloud.poll(&started).await.expect(200);
    }
    cloud.poll(&started).await.expect(429);
    let all = "/subscriptions/s1/providers/Microsoft.ContainerService/managedClusters";
    for _ in 0..500 {
        cloud.get(all).await.expect(200);
    }
    cloud.get(all).await.expect(429);
}
