package redisstore_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
	proxyconfig "github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/simulate"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/playbooks"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// million is the number of codes for which the budgets of the configuration are.
const million = 1_000_000

// scaled returns the configuration with budgets for so many codes.
func scaled(text string, sends int) string {
	return regexp.MustCompile(`\[(\d+)/1d\]`).ReplaceAllStringFunc(text, func(budget string) string {
		amount, err := strconv.Atoi(strings.TrimSuffix(budget[1:], "/1d]"))
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf("[%d/1d]", max(1, amount*sends/million))
	})
}

// A day with three attacks comes to the same in a simulation of its log and in front of a running proxy with
// Redis: every count of every limit. The budgets count what the codes cost. The reference has what the day comes to. WEIR_SENDS is
// the number of codes, of which the reference has 2000 and 1000000, which takes most of an hour.
func TestStore_DayIsAsSimulated(t *testing.T) {
	t.Parallel()
	file := filetest.Read(t, "../../test/playbooks/million/weir.yaml")
	sends, _ := strconv.Atoi(cmp.Or(os.Getenv("WEIR_SENDS"), "400"))
	text := scaled(string(file), sends)
	began := time.UnixMilli(1_700_000_000_000)
	day := playbooks.Traffic(1, sends/5, sends)
	toll, served := serveDay(t, text, day)
	simulated := simulateDay(t, text, began, day)
	for _, rt := range simulated.Routes {
		for _, l := range rt.Limits {
			served.compare(t, rt.Name, &l)
		}
	}
	if sends < 2000 {
		return
	}
	row := dayRow(&toll)
	reference := filetest.Read(t, "../../proxy/docs/fraud.md")
	if !strings.Contains(string(reference), row) {
		t.Errorf("proxy/docs/fraud.md lacks this row:\n%s", row)
	}
}

// dayRow is what a day came to, as the reference says it.
func dayRow(toll *playbooks.Toll) string {
	row := fmt.Sprintf("| %s |", grouped(toll.Asked*10/9))
	for _, attack := range []string{"pumping", "spread", "counterfeit"} {
		row += fmt.Sprintf(" %s of %s |", grouped(toll.Through[attack]), grouped(toll.Tried[attack]))
	}
	return row + fmt.Sprintf(" %s € | %s of %s | %s of %s |", grouped(toll.Cost/1_000_000), grouped(toll.Refused), grouped(toll.Asked), grouped(toll.Wronged), grouped(toll.Users))
}

// grouped formats n with its digits in groups of three.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// serveDay sends the requests of a day to a proxy whose store is Redis with the times of the day.
func serveDay(t *testing.T, text string, day []playbooks.Sent) (toll playbooks.Toll, served measured) {
	t.Helper()
	client := connect(t, redistest.Start(t).Addr)
	store := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
	t.Cleanup(func() { store.Close() })
	nodes, registry := playbooks.StartMeasured(t, text, store)
	at := time.Duration(-1)
	for i := range day {
		if s := &day[i]; s.At != at {
			at = s.At
			if err := client.Set(context.Background(), redisstore.TestClock, 1_700_000_000_000+at.Milliseconds(), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		status := nodes.Send(day[i].Request)
		if status != day[i].Status && status != 429 {
			t.Fatalf("%+v is answered with %d", day[i], status)
		}
		toll.Count(&day[i], status)
		if i%(million/10) == million/10-1 {
			t.Logf("%d requests", i+1)
		}
	}
	return toll, measured{nodes[0].Counts(), gather(t, registry), toll.Spent}
}

// simulateDay simulates the log of a day.
func simulateDay(t *testing.T, text string, began time.Time, day []playbooks.Sent) proxy.ReplayTally {
	t.Helper()
	var log bytes.Buffer
	if err := playbooks.WriteLog(&log, began, day); err != nil {
		t.Fatal(err)
	}
	c := weirtest.Load(t, "store: redis\n"+strings.ReplaceAll(text, "UPSTREAM", "echo"))
	names, err := simulate.NewNames([]string{"phone=phone"}, c)
	if err != nil {
		t.Fatal(err)
	}
	report, err := simulate.Run(t.Context(), simulate.Options{Format: simulate.JSON, Names: names, Configs: []*proxyconfig.Config{c}, Top: 10, Logs: []simulate.Log{{Name: "day", Reader: &log}}})
	if err != nil || report.Requests != int64(len(day)) || report.Late > 0 || report.Result.Unknown > 0 {
		t.Fatalf("%v: %+v", err, report)
	}
	return report.Result
}

// measured has the figures of a proxy.
type measured struct {
	decisions map[proxy.Series]int64
	metrics   map[string]float64 // by name and limit
	spent     int                // what the codes cost that were sent, in millionths of a euro
}

// gather returns the metrics of limits.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "limit" {
					all[strings.TrimPrefix(f.GetName(), "weir_")+" "+l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return all
}

// compare compares the figures of a limit with those of its simulation, and of a budget with what was sent.
func (m measured) compare(t *testing.T, route string, l *proxy.LimitTally) {
	t.Helper()
	for result, n := range map[string]int64{"allowed": l.Passed, "refused": l.Refused, "shadow_refused": l.Shadowed} {
		if want := m.decisions[proxy.Series{Route: route, Limit: l.Name, Result: result}]; n != want {
			t.Errorf("%s.%s: %d %s in the simulation; served %d", route, l.Name, n, result, want)
		}
	}
	if spent := int(math.Round(m.metrics["spend_total "+l.Name] * 1e6)); strings.HasPrefix(l.Name, "spend") && (spent != m.spent || spent == 0) {
		t.Errorf("%s: %d millionths were spent; the codes that were sent cost %d", l.Name, spent, m.spent)
	}
}

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
		text := filetest.Read(t, "../../test/playbooks/"+name+"/weir.yaml")
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
	text := filetest.Read(t, "../../test/playbooks/pumping/weir.yaml")
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
