package cluster_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

const secret = "sixteen or more characters"

// A receiver is a webhook.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	statuses []int // of its answers; the last one for all that follow
	got      []cluster.Alert
}

func receives(t *testing.T, statuses ...int) *receiver {
	t.Helper()
	r := &receiver{t: t, statuses: statuses}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	var a cluster.Alert
	if err := json.Unmarshal(body, &a); err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" {
		r.t.Errorf("the webhook is sent %s %v %q: %v", q.Method, q.Header, body, err)
	}
	if got := q.Header.Get("Weir-Alert-Id"); got != a.ID || a.ID == "" {
		r.t.Errorf("the id is %q in the header and %q in the body", got, a.ID)
	}
	seconds, sum, _ := strings.Cut(strings.TrimPrefix(q.Header.Get("Weir-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, seconds+"."+string(body))
	if want := hex.EncodeToString(mac.Sum(nil)); sum != want {
		r.t.Errorf("the signature is %q; want %q", sum, want)
	}
	r.got = append(r.got, a)
	status := r.statuses[0]
	if len(r.statuses) > 1 {
		r.statuses = r.statuses[1:]
	}
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(status)
}

func (r *receiver) received() []cluster.Alert {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]cluster.Alert{}, r.got...)
}

// A testAlerter is an Alerter, and what became of its alerts.
type testAlerter struct {
	*cluster.Alerter
	t       *testing.T
	results map[string]int
}

func newTestAlerter(t *testing.T, s *cluster.Statistics, rdb redis.UniversalClient, webhook string) *testAlerter {
	t.Helper()
	a := &testAlerter{t: t, results: map[string]int{}}
	rules := func() config.Alerts {
		return config.Alerts{Webhook: webhook, Secret: secret, Refused: config.Threshold{Count: 100}, Used: []int64{80}, Conversion: 35, Repeat: time.Hour}
	}
	done := func(_ cluster.Alert, result string, err error) {
		a.results[result]++
		if err != nil && strings.Contains(err.Error(), webhook) {
			t.Errorf("the error %q tells the URL", err)
		}
	}
	a.Alerter = cluster.NewAlerter(cluster.AlerterOptions{Statistics: s, Rules: rules, Sends: sentCodes, Done: done})
	return a
}

// sentCodes are limits of codes: a key is below 35 % and its rate, at one of them, or below the first alone.
func sentCodes(context.Context) ([]sends.LimitCounts, error) {
	key := func(name string, sent, used, rated int64) sends.KeyCounts {
		return sends.KeyCounts{Masked: name, Hash: "hash of " + name, Counts: sends.Counts{Sent: sent, Used: used}, Rated: rated}
	}
	return []sends.LimitCounts{
		{Route: "send", Limit: "unused", Window: "1d", Keys: []sends.KeyCounts{
			key("country=CN", 900, 315, 40), key("country=GB", 100, 34, 100), key("country=US", 90, 5, 40), key("country=FR", 39, 0, 40), {Masked: "country=DE", Unknown: "memory"},
		}},
		{Route: "send", Limit: "ranges", Window: "1h", Keys: []sends.KeyCounts{
			key("r=1", 60, 60, 9), key("r=2", 50, 50, 9), key("r=3", 40, 40, 9), key("r=4", 30, 30, 9), key("r=5", 20, 20, 9), key("r=6", 10, 10, 9),
		}},
		{Route: "pay", Limit: "unpaid", Window: "1h", Keys: []sends.KeyCounts{key("ip=192.0.2.1", 9, 9, 9)}},
	}, nil
}

// A conversion that falls below that of the rules is told once for each limit, whoever leads, until repeat is over.
func TestAlerter_LowConversions(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	hook := receives(t, 200)
	s := cluster.NewStatistics(rdb, "test", "a", newCounter())
	for i, want := range []string{"raised 1", "", "", "raised 1"} {
		if i == 3 {
			const raised = "test:{cluster}:alerted:conversion:send:unused:1d"
			if left := rdb.PTTL(t.Context(), raised).Val(); left <= 50*time.Minute || left > time.Hour {
				t.Errorf("the alert is not repeated for %v; want an hour", left)
			}
			rdb.Del(t.Context(), raised) // the hour is over
		}
		node := newTestAlerter(t, s, rdb, hook.URL) // each is the next leader
		if did, err := node.ConversionTask().Run(t.Context(), leading(t, rdb)); did != want || err != nil {
			t.Errorf("leader %d says %q %v; want %q", i, did, err, want)
		}
	}
	newTestAlerter(t, s, rdb, hook.URL).runs(leading(t, rdb), 2, cluster.Sent)
	got := hook.received()
	if len(got) != 2 || got[0].ID == got[1].ID {
		t.Fatalf("the webhook got %+v; want two alerts", got)
	}
	sent := func(limit, name string, sent, used int64) cluster.SentKey {
		return cluster.SentKey{Limit: limit, Key: "hash of " + name, Masked: name, Sent: sent, Used: used}
	}
	want := cluster.Alert{
		ID: got[0].ID, At: got[0].At, Kind: cluster.KindConversion, Route: "send", Limit: "unused", Window: "1d", Count: 5, Of: 90,
		Key: "hash of country=US", Masked: "country=US", Text: "Weir: of 90 requests of country=US in 1d, 5 were used, limit unused of route send.",
		Low:    []cluster.SentKey{sent("unused", "country=US", 90, 5), sent("unused", "country=GB", 100, 34)},
		Beside: []cluster.SentKey{sent("ranges", "r=1", 60, 60), sent("ranges", "r=2", 50, 50), sent("ranges", "r=3", 40, 40), sent("ranges", "r=4", 30, 30), sent("ranges", "r=5", 20, 20)},
	}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("the webhook got %+v; want %+v", got[0], want)
	}
}

// runs runs the task until n alerts had that result.
func (a *testAlerter) runs(term cluster.Term, n int, result string) {
	a.t.Helper()
	task := a.Task()
	await.Until(a.t, fmt.Sprint(n, " alerts ", result), func() bool {
		if _, err := task.Run(a.t.Context(), term); errors.Is(err, cluster.ErrDeposed) {
			a.t.Fatal(err)
		}
		return a.results[result] >= n
	})
}

// reported is a node that has refused n requests of send.phone.
func reported(t *testing.T, rdb redis.UniversalClient, node string, n int64) *cluster.Statistics {
	t.Helper()
	c := newCounter()
	c.add("send", "phone", "refused", n)
	c.add("send", "", "refused", n) // the requests, of which no alert tells
	s := cluster.NewStatistics(rdb, "test", node, c)
	check(t, s.Flush(t.Context()))
	return s
}

// What two nodes refuse together is told once, whoever leads, and again and again
// until the webhook takes it.
func TestAlerter_TellsOnceForAll(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	hook := receives(t, 503, 200)
	s := reported(t, rdb, "a", 60)
	first := newTestAlerter(t, s, rdb, hook.URL)
	term := leading(t, rdb)
	if did, err := first.Task().Run(t.Context(), term); did != "" || err != nil || len(hook.received()) != 0 {
		t.Errorf("of 60 refused requests the alerter says %q %v", did, err)
	}
	reported(t, rdb, "b", 40)
	first.runs(term, 1, cluster.Sent)
	got := hook.received()
	if len(got) != 2 || !reflect.DeepEqual(got[0], got[1]) || first.results[cluster.Failed] != 1 {
		t.Fatalf("the webhook got %+v and the results are %v; want one alert, twice", got, first.results)
	}
	if a := got[0]; a.Kind != cluster.KindRefused || a.Route != "send" || a.Limit != "phone" || a.Count != 100 || a.Of != 100 || a.At.IsZero() || !strings.Contains(a.Text, "refused 100 requests") {
		t.Errorf("the alert is %+v", a)
	}
	reported(t, rdb, "c", 500)
	next := newTestAlerter(t, s, rdb, hook.URL)
	for range 2 {
		if did, err := next.Task().Run(t.Context(), leading(t, rdb)); did != "" || err != nil {
			t.Errorf("the next leader says %q %v; want that all is told", did, err)
		}
	}
	if got := hook.received(); len(got) != 2 {
		t.Errorf("the webhook got %d; want no more than before", len(got))
	}
}

// A leader that dies with the alert unsent leaves it to the next.
func TestAlerter_NothingIsLostWithTheLeader(t *testing.T) {
	t.Parallel()
	rdb := dial(t, redistest.Start(t).Addr)
	hook := receives(t, 503, 503, 204)
	s := reported(t, rdb, "a", 100)
	old := leading(t, rdb)
	dead := newTestAlerter(t, s, rdb, hook.URL)
	dead.runs(old, 1, cluster.Failed)
	next := newTestAlerter(t, s, rdb, hook.URL)
	next.runs(leading(t, rdb), 1, cluster.Sent)
	if got := hook.received(); len(got) != 3 || got[0].ID != got[2].ID {
		t.Errorf("the webhook got %+v; want one alert three times", got)
	}
	reported(t, rdb, "b", 1000)
	rdb.Del(t.Context(), "test:{cluster}:alerted:refused:send:phone:")
	if _, err := dead.Task().Run(t.Context(), old); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("the deposed leader is answered %v; want ErrDeposed", err)
	}
	if n := rdb.LLen(t.Context(), "test:{cluster}:alerts").Val(); n != 0 || len(hook.received()) != 3 {
		t.Errorf("the deposed leader raised %d alerts", n)
	}
}

func TestAlerter_GivesUpWhereNothingHelps(t *testing.T) {
	for _, status := range []int{400, 401, 404, 410, 301, 307} {
		hook := receives(t, status)
		s := reported(t, nil, "a", 100)
		a := newTestAlerter(t, s, nil, hook.URL)
		a.runs(cluster.Term{}, 1, cluster.Dropped)
		a.Task().Run(t.Context(), cluster.Term{})
		if got := hook.received(); len(got) != 1 {
			t.Errorf("a webhook that answers %d is sent %d alerts; want 1", status, len(got))
		}
	}
}

func TestAlerter_NobodyIsToldWithoutAWebhook(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	a := newTestAlerter(t, reported(t, rdb, "a", 1000), rdb, "")
	if did, err := a.Task().Run(t.Context(), leading(t, rdb)); did != "" || err != nil {
		t.Errorf("without a webhook the alerter says %q %v", did, err)
	}
	if n := rdb.LLen(t.Context(), "test:{cluster}:alerts").Val(); n != 0 {
		t.Errorf("%d alerts wait for nobody", n)
	}
}

// The key that has used most of a limit is told of, masked, wherever it was seen.
func TestAlerter_KeysThatAreNearTheirLimit(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	hook := receives(t, 200)
	var s *cluster.Statistics
	for node, used := range map[string]int64{"a": 85, "b": 92, "c": 80} {
		c := newCounter()
		c.near = []proxy.Near{{Route: "send", Limit: "total", Window: "1d", Used: used, Of: 100, Key: node, Masked: "+86****"}}
		c.near = append(c.near, proxy.Near{Route: "send", Limit: "total", Window: "1d", Used: 9 * used, Of: 1000, Key: "of another plan"})
		s = cluster.NewStatistics(rdb, "test", node, c)
		check(t, s.Flush(t.Context()))
	}
	newTestAlerter(t, s, rdb, hook.URL).runs(leading(t, rdb), 1, cluster.Sent)
	got := hook.received()
	if len(got) != 1 || got[0].Kind != cluster.KindUsed || got[0].Window != "1d" || got[0].Count != 92 || got[0].Of != 100 || got[0].Key != "b" || got[0].Masked != "+86****" {
		t.Errorf("the webhook got %+v; want one alert of the key that has used 92", got)
	}
}

// However many limits are used up while the webhook is away, what waits is bounded,
// in Redis and in memory; what is lost is told.
func TestAlerter_QueueIsBounded(t *testing.T) {
	for name, rdb := range map[string]redis.UniversalClient{"redis": dial(t, redistest.Start(t).Addr), "memory": nil} {
		t.Run(name, func(t *testing.T) {
			c := newCounter()
			for i := range 130 {
				c.add("send", fmt.Sprint("limit", i), "refused", 100)
			}
			s := cluster.NewStatistics(rdb, "test", "a", c)
			check(t, s.Flush(t.Context()))
			term := cluster.Term{}
			if rdb != nil {
				term = leading(t, rdb)
			}
			away := receives(t, 200)
			away.Close()
			a := newTestAlerter(t, s, rdb, away.URL)
			a.runs(term, 1, cluster.Failed)
			if a.results[cluster.Dropped] != 30 {
				t.Errorf("of 130 alerts %d are told to be lost; want 30", a.results[cluster.Dropped])
			}
			if rdb == nil {
				return
			}
			if n := rdb.LLen(t.Context(), "test:{cluster}:alerts").Val(); n != 100 {
				t.Errorf("%d alerts wait; want 100", n)
			}
		})
	}
}

func TestAlerter_PausesLongerAfterEachFailure(t *testing.T) {
	s := reported(t, nil, "a", 100)
	a := newTestAlerter(t, s, nil, "http://127.0.0.1:1")
	last := time.Duration(0)
	for range 10 {
		pause := a.Rest()
		if pause < last || pause > time.Minute {
			t.Errorf("a pause of %v after one of %v", pause, last)
		}
		last = pause
	}
	if last != time.Minute {
		t.Errorf("the longest pause is %v; want a minute", last)
	}
}
