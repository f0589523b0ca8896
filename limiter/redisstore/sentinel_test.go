package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// When the master dies under load, takes fail in time, and go on at the replica
// once it is master, with what it knew; no script is lost for good.
func TestStore_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	client := clientOf(t, redisstore.ClientConfig{Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: 2 * time.Second, BreakRest: 100 * time.Millisecond})
	store := storeOn(t, client, redisstore.Options{Timeout: 2 * time.Second})
	c := claim(1000, time.Hour, 1)
	var d limiter.Decision
	for range 100 {
		d = decide(t, store, c...)
	}
	if n, err := client.Do(t.Context(), "wait", 1, patient.Milliseconds()).Int(); n != 1 || err != nil {
		t.Fatalf("%d replicas: %v", n, err)
	}
	servers.Master.Kill()
	start, failures := time.Now(), 0
	for {
		began := time.Now()
		err := store.Take(t.Context(), c, &d)
		if took := time.Since(began); took > patient {
			t.Errorf("a take took %v", took)
		}
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatal(err)
		}
		if time.Since(start) > await.Limit {
			t.Fatalf("not back after %v: %v", time.Since(start), err)
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Logf("back after %v and %d failures", time.Since(start).Round(time.Millisecond), failures)
	if failures == 0 || d.Outcomes[0].Remaining > 899 || d.Outcomes[0].Remaining < 890 {
		t.Errorf("%d failures, then %+v; want 899 left, or a few less", failures, d)
	}
}
