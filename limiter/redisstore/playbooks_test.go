package redisstore_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/playbooks"
	"github.com/weir-proxy/weir/test/redistest"
)

// A day of fraud against three nodes that share Redis comes to the same as against one that counts
// in memory.
func TestStore_PlaybooksComeToTheSame(t *testing.T) {
	t.Parallel()
	client := connect(t, redistest.Start(t).Addr)
	var stores []limiter.AdminStore
	for range 3 {
		store := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
		t.Cleanup(func() { store.Close() })
		stores = append(stores, store)
	}
	for name, attack := range playbooks.Attacks() {
		text, err := os.ReadFile("../../test/playbooks/" + name + "/weir.yaml")
		if err != nil {
			t.Fatal(err)
		}
		now := time.UnixMilli(1_800_000_000_000)
		memory := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
		one := playbooks.Day{Users: 30, Tries: 50, Send: playbooks.Start(t, string(text), memory).Send, Advance: func(d time.Duration) { now = now.Add(d) }}
		want := one.Run(2, attack)

		client.FlushAll(t.Context())
		client.Set(t.Context(), redisstore.TestClock, int64(1_800_000_000_000), 0)
		three := playbooks.Day{Users: 30, Tries: 50, Send: playbooks.Start(t, string(text), stores...).Send, Advance: func(d time.Duration) {
			if err := client.IncrBy(context.Background(), redisstore.TestClock, d.Milliseconds()).Err(); err != nil {
				t.Errorf("advance: %v", err)
			}
		}}
		if got := three.Run(2, attack); got != want {
			t.Errorf("%s: with Redis %+v; in memory %+v", name, got, want)
		}
	}
}

// An outage of Redis lets no more through than the reference says of a limit's rate: of 10 an hour on
// three nodes, 16.
func TestStore_PlaybookInAnOutage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../test/playbooks/pumping/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	var stores []limiter.AdminStore
	for range 3 {
		store := storeOn(t, connect(t, server.Addr), redisstore.Options{Timeout: patient})
		stores = append(stores, store)
	}
	nodes := playbooks.Start(t, string(text), stores...)
	day := playbooks.Day{Tries: 300, Advance: func(time.Duration) {}, Send: func(r playbooks.Request) int {
		if r.Count == 8 {
			server.Kill()
		}
		return nodes.Send(r)
	}}
	if got := day.Run(3, playbooks.Attacks()["pumping"]); got.Through < 3 || got.Through > 16 {
		t.Errorf("got %+v; want 3 to 16 through", got)
	}
}
