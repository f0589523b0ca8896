package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A trail is the log of an audit.
type trail struct {
	mu  sync.Mutex
	all []view.AuditEntry
}

func (t *trail) log(e view.AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, e)
}

// audits runs a test against a trail in memory and in Redis, of two nodes there.
func audits(t *testing.T, test func(t *testing.T, near, far *cluster.Audit, log *trail)) {
	t.Run("memory", func(t *testing.T) {
		var log trail
		a := cluster.NewAudit(nil, "", "near", log.log)
		test(t, a, a, &log)
	})
	t.Run("redis", func(t *testing.T) {
		var log trail
		rdb := dial(t, redistest.Start(t).Addr)
		test(t, cluster.NewAudit(rdb, "test", "near", log.log), cluster.NewAudit(rdb, "test", "far", log.log), &log)
		if ttl := rdb.PTTL(t.Context(), "test:{cluster}:audit").Val(); ttl < cluster.AuditRetention-time.Hour || ttl > cluster.AuditRetention {
			t.Errorf("the trail lives for %v, want about %v", ttl, cluster.AuditRetention)
		}
	})
}

// pages reads all that there is, n at a time.
func pages(t *testing.T, a *cluster.Audit, n int) (all []string) {
	t.Helper()
	before := ""
	for {
		p, err := a.Page(t.Context(), before, n)
		check(t, err)
		if len(p.Entries) > n {
			t.Fatalf("%d entries on a page of %d", len(p.Entries), n)
		}
		for _, e := range p.Entries {
			all = append(all, e.Reason)
		}
		if before = p.Next; before == "" {
			return all
		}
	}
}

// What anybody does everybody reads, the last first, page by page; and it is in the log.
func TestAudit_IsReadByAll(t *testing.T) {
	audits(t, func(t *testing.T, near, far *cluster.Audit, log *trail) {
		var want []string
		for i := range 25 {
			reason := fmt.Sprint("reason ", i)
			e := view.AuditEntry{
				Who: "alice", Action: "ban", Masked: "phone=+86138****8000", Hash: "0123456789ab", For: "1h",
				Limits: []string{"send.phone"}, Reason: reason,
			}
			check(t, near.Record(t.Context(), e, nil))
			want = append([]string{reason}, want...)
		}
		for _, n := range []int{1, 7, 25, 100} {
			if got := pages(t, far, n); strings.Join(got, ",") != strings.Join(want, ",") {
				t.Fatalf("pages of %d: %v; want %v", n, got, want)
			}
		}
		p, err := far.Page(t.Context(), "", 1)
		check(t, err)
		got := p.Entries[0]
		if got.Node != "near" || got.Who != "alice" || got.For != "1h" || got.ID == "" || time.Since(got.At) > time.Minute || got.Limits[0] != "send.phone" {
			t.Errorf("%+v", got)
		}
		if len(log.all) != 25 || log.all[24].Reason != want[0] || log.all[24].Node != "near" {
			t.Errorf("%d entries in the log", len(log.all))
		}
		for _, bad := range []string{"x", "(1", "1-2-3", "+"} {
			if _, err := far.Page(t.Context(), bad, 1); err == nil {
				t.Errorf("a page before %q", bad)
			}
		}
		for _, first := range []string{"0", "0-0"} { // nothing is before it, whichever is an id there
			if p, err := far.Page(t.Context(), first, 1); len(p.Entries) > 0 || err != nil && !errors.Is(err, cluster.ErrAuditID) {
				t.Errorf("before %q: %+v, %v", first, p, err)
			}
		}
	})
}

// Texts are bounded, whatever an operator's program sends.
func TestAudit_IsBounded(t *testing.T) {
	audits(t, func(t *testing.T, near, _ *cluster.Audit, _ *trail) {
		e := view.AuditEntry{Who: strings.Repeat("w", 9999), Reason: strings.Repeat("ü", 9999), Error: "\xff", Limits: make([]string, 999)}
		check(t, near.Record(t.Context(), e, nil))
		p, err := near.Page(t.Context(), "", 10)
		if err != nil || len(p.Entries) != 1 {
			t.Fatalf("%+v %v", p, err)
		}
		text, err := json.Marshal(p.Entries[0])
		if err != nil || len(text) > 4096 || !strings.HasSuffix(p.Entries[0].Reason, "ü...") {
			t.Errorf("%d bytes, %v: %s; want at most 4096, and what is left out", len(text), err, p.Entries[0].Reason)
		}
	})
}

func TestAudit_OldEntriesGo(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		rdb := dial(t, redistest.Start(t).Addr)
		a := cluster.NewAudit(rdb, "test", "near", new(trail).log)
		for _, id := range []string{"1-0", fmt.Sprint(time.Now().Add(-cluster.AuditRetention - time.Hour).UnixMilli())} {
			rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "test:{cluster}:audit", ID: id, Values: []string{"entry", `{"reason":"old"}`}})
		}
		if got := pages(t, a, 10); len(got) != 0 {
			t.Errorf("%v; want nothing that old", got)
		}
		check(t, a.Record(t.Context(), view.AuditEntry{Reason: "new"}, nil))
		if n := rdb.XLen(t.Context(), "test:{cluster}:audit").Val(); n != 1 {
			t.Errorf("%d entries in Redis, want 1", n)
		}
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := cluster.NewAudit(nil, "", "near", new(trail).log)
			for _, reason := range []string{"first", "second"} {
				check(t, a.Record(t.Context(), view.AuditEntry{Reason: reason}, nil))
				time.Sleep(cluster.AuditRetention / 2)
			}
			time.Sleep(time.Second)
			if got := pages(t, a, 10); len(got) != 1 || got[0] != "second" {
				t.Errorf("%v; want the second alone", got)
			}
		})
	})
}

// The count is bounded as well: the oldest go.
func TestAudit_MostEntries(t *testing.T) {
	a := cluster.NewAudit(nil, "", "near", func(view.AuditEntry) {})
	for i := range cluster.MaxAuditEntries + 5 {
		check(t, a.Record(t.Context(), view.AuditEntry{Reason: fmt.Sprint(i)}, nil))
	}
	all := pages(t, a, 500)
	if len(all) != cluster.MaxAuditEntries || all[len(all)-1] != "5" {
		t.Errorf("%d entries, the oldest %s", len(all), all[len(all)-1])
	}
}

// What is done while Redis is away is written when it is back, in order.
func TestAudit_WaitsForRedis(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	var log trail
	a := cluster.NewAudit(rdb, "test", "near", log.log)
	s.Kill()
	for _, reason := range []string{"first", "second"} {
		if err := a.Record(t.Context(), view.AuditEntry{Reason: reason}, nil); err == nil {
			t.Error("no error while Redis is away")
		}
	}
	if len(log.all) != 2 {
		t.Errorf("%d in the log, want 2", len(log.all))
	}
	s.Restart()
	await.Until(t, "all is written", func() bool { return a.Flush(t.Context()) == nil })
	check(t, a.Record(t.Context(), view.AuditEntry{Reason: "third"}, nil))
	if got := strings.Join(pages(t, a, 10), " "); got != "third second first" {
		t.Errorf("%s; want each once, in order", got)
	}
}

// Many at once lose nothing.
func TestAudit_Concurrently(t *testing.T) {
	audits(t, func(t *testing.T, near, far *cluster.Audit, _ *trail) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 20 {
					a := near
					if j%2 == 0 {
						a = far
					}
					if err := a.Record(t.Context(), view.AuditEntry{Reason: fmt.Sprint(i, "-", j)}, nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		check(t, errors.Join(near.Flush(t.Context()), far.Flush(t.Context())))
		seen := map[string]bool{}
		for _, reason := range pages(t, near, 50) {
			seen[reason] = true
		}
		if len(seen) != 160 {
			t.Errorf("%d entries, want 160", len(seen))
		}
	})
}

func TestAuditOf(t *testing.T) {
	c := view.KeyChange{Action: view.KeyBan, For: view.Span(time.Hour), Reason: "abuse", KeyQuery: view.KeyQuery{Pairs: []view.KeyPair{{Key: "phone", Value: "+8613800138000"}}}}
	r := view.KeyResult{Everywhere: true, Changed: []view.LimitStanding{
		{Route: "send", Limit: "phone", Masked: "phone=+8613800138000", Logged: "phone=+86138****8000", Hash: "0123456789ab"}, {Route: "send", Limit: "spare"},
	}}
	got := cluster.AuditOf("alice", c, r, nil)
	text, err := json.Marshal(got)
	if err != nil || strings.Contains(string(text), "13800138000") || got.For != "1h" || got.Action != "ban" || got.Masked != "phone=+86138****8000" ||
		strings.Join(got.Limits, " ") != "send.phone send.spare" || got.OneNode {
		t.Errorf("%s, %v", text, err)
	}
	r.Changed[0].Unaffected = true
	for action, want := range map[view.KeyAction]string{view.KeyReset: "send.spare", view.KeyGrant: "send.phone send.spare"} {
		if got := cluster.AuditOf("alice", view.KeyChange{Action: action}, r, nil); strings.Join(got.Limits, " ") != want {
			t.Errorf("%s where one had nothing: %v; want %s", action, got.Limits, want)
		}
	}
	r.Changed[1].Unaffected = true
	if got := cluster.AuditOf("alice", view.KeyChange{Action: view.KeyReset}, r, nil); strings.Join(got.Limits, " ") != "send.phone send.spare" {
		t.Errorf("where none had anything: %v; want those that were named", got.Limits)
	}
	if got := cluster.AuditOf("alice", c, view.KeyResult{}, errors.New("no")); got.Error != "no" || got.Action != "ban" || len(got.Limits) != 0 {
		t.Errorf("%+v", got)
	}
}

// The entry of a change that waits for Redis is written when it is known where it holds; others are not held up,
// and at the end of the node all are written.
func TestAudit_SaysWhereALateChangeHolds(t *testing.T) {
	audits(t, func(t *testing.T, near, far *cluster.Audit, log *trail) {
		const where = "on this node now, on all nodes when redis is back"
		done := map[string]func() (bool, bool){}
		for _, reason := range []string{"applied", "over", "waits"} {
			later := &cluster.Later{Where: where, Settled: func() (bool, bool) {
				if ask := done[reason]; ask != nil {
					return ask()
				}
				return false, false
			}}
			check(t, near.Record(t.Context(), view.AuditEntry{Reason: reason, OneNode: true, Detail: "pro"}, later))
		}
		check(t, near.Record(t.Context(), view.AuditEntry{Reason: "at once"}, nil))
		if got := strings.Join(pages(t, far, 10), ","); got != "at once" || len(log.all) != 4 || log.all[0].Detail != "pro, "+where {
			t.Fatalf("%s is written, and %+v logged; want only what does not wait, and all of it", got, log.all)
		}
		done["applied"] = func() (bool, bool) { return true, true }
		done["over"] = func() (bool, bool) { return true, false }
		for range 2 {
			check(t, near.Flush(t.Context()))
		}
		check(t, near.FlushAll(t.Context()))
		p, err := far.Page(t.Context(), "", 10)
		if err != nil || len(p.Entries) != 4 {
			t.Fatalf("%+v, %v; want 4 entries", p, err)
		}
		for i, want := range []struct {
			reason, detail string
			oneNode        bool
		}{{"waits", "pro, " + where, true}, {"over", "pro, on this node only: it was over", true}, {"applied", "pro, on all nodes since ", false}} {
			if e := p.Entries[i]; e.Reason != want.reason || e.OneNode != want.oneNode || !strings.HasPrefix(e.Detail, want.detail) {
				t.Errorf("%+v; want %+v", e, want)
			}
		}
	})
}
