package test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// sendingYAML are routes that send and verify codes; UPSTREAM answers as asked.
const sendingYAML = `
client_ip: {trusted_proxies: [127.0.0.0/8], header: X-Forwarded-For}
keys:
  number: {from: "header:X-Phone", normalize: e164}
  country: {of: number, part: country}
  range: {of: number, part: prefix, drop_last: 4}
  ip: client_ip
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: UPSTREAM
    refund_on: {status: [5xx]}
    limits:
      - {name: unused, key: country, rates: [4/1h, 9/1d], return_on: {route: verify, key: number}, conversion: 50%}
      - {name: unused-ip, key: ip, rates: [100/1h], return_on: {route: verify, key: number}}
      - {name: unused-range, key: range, rates: [100/1d], return_on: {route: verify, key: number}, conversion: 50%}
  - {name: verify, match: {methods: [POST], path: /verify}, upstream: UPSTREAM, limits: [{key: number, rate: 100/1h}]}
`

// A sender sends and verifies codes over several nodes, and counts what came of it by country.
type sender struct {
	t                    *testing.T
	nodes                []*weir
	n                    int
	sent, used, refunded map[string]int64
	open                 map[string]int64 // of what was not refused in shadow mode
	wouldRefuse, wrong   map[string]int64
}

func newSender(t *testing.T, nodes ...*weir) *sender {
	m := func() map[string]int64 { return map[string]int64{} }
	return &sender{t: t, nodes: nodes, sent: m(), used: m(), refunded: m(), open: m(), wouldRefuse: m(), wrong: m()}
}

// post sends a request for a phone by the next node, and wants a status.
func (s *sender) post(path, phone string, status int) {
	s.t.Helper()
	s.n++
	header := http.Header{"X-Phone": {phone}, "Want": {fmt.Sprint(status)}, "X-Forwarded-For": {"192.0.2.1"}}
	if got, body := do(s.t, http.MethodPost, s.nodes[s.n%len(s.nodes)].URL+path, header); got != status {
		s.t.Fatalf("%s for %s: %d, want %d: %s", path, phone, got, status, body)
	}
}

// sendings are codes that are sent to a country: how many, and of how many the sending fails, and how many are used.
type sendings struct {
	country, prefix                   string
	sent, failed, usedEarly, usedLate int
	refused                           int // of those sent, the last that the limit in shadow mode would have refused
}

// send sends codes to numbers of a country. Those of the first usedEarly numbers are used at once, and those of the
// last usedLate at the end.
func (s *sender) send(c sendings) {
	s.t.Helper()
	phone := func(i int) string { return fmt.Sprintf("%s%03d", c.prefix, i) }
	for i := range c.sent {
		s.post("/send", phone(i), 200)
		if i < c.usedEarly {
			s.post("/verify", phone(i), 200)
		}
	}
	for i := range c.failed {
		s.post("/send", phone(500+i), 503)
	}
	for i := range c.usedLate {
		s.post("/verify", phone(c.sent-1-i), 200)
	}
	early, late := int64(c.usedEarly), int64(c.usedLate)
	s.sent[c.country], s.used[c.country], s.refunded[c.country] = int64(c.sent), early+late, int64(c.failed)
	s.wouldRefuse[c.country], s.wrong[c.country] = int64(c.refused), min(late, int64(c.refused))
	s.open[c.country] = int64(c.sent-c.refused) - early - (late - s.wrong[c.country])
}

// counts returns what the client has counted of a country.
func (s *sender) counts(country string) sends.Counts {
	return sends.Counts{Ratio: float64(s.used[country]) / float64(s.sent[country]), Sent: s.sent[country], Used: s.used[country], Refunded: s.refunded[country], WouldRefuse: s.wouldRefuse[country], Wrong: s.wrong[country]}
}

// sum returns it of all countries.
func (s *sender) sum() (all sends.Counts) {
	for country := range s.sent {
		c := s.counts(country)
		all.Sent, all.Used, all.Refunded = all.Sent+c.Sent, all.Used+c.Used, all.Refunded+c.Refunded
		all.WouldRefuse, all.Wrong = all.WouldRefuse+c.WouldRefuse, all.Wrong+c.Wrong
	}
	all.Ratio = float64(all.Used) / float64(all.Sent)
	return all
}

// A shownLimit shows what a node has said last.
type shownLimit struct{ *sends.LimitCounts }

func (s *shownLimit) String() string { return fmt.Sprintf("%+v", *s.LimitCounts) }

// conversion asks a node of a limit.
func (w *weir) conversion(limit string) sends.LimitCounts {
	w.t.Helper()
	var a admin.Conversion
	if w.getAdmin("/api/v1/conversion?limit="+limit, &a); len(a.Limits) != 1 {
		w.t.Fatalf("%+v", a)
	}
	return a.Limits[0]
}

// What the API, the page and the metrics say of codes is what the client has counted, whichever node is asked.
func TestSends_AreWhatTheClientCounted(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func() (string, int){
		"memory": func() (string, int) { return "", 1 },
		"redis":  func() (string, int) { return redisYAML(redistest.Start(t).Addr), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			head, n := prepare()
			config := head + strings.ReplaceAll(sendingYAML, "UPSTREAM", "'"+answering(t).URL+"'")
			var nodes []*weir
			for range n {
				nodes = append(nodes, start(t, config))
			}
			s := newSender(t, nodes...)
			s.send(sendings{country: "CN", prefix: "+8613800138", sent: 12, usedEarly: 7, failed: 2, refused: 0})
			s.send(sendings{country: "GB", prefix: "+447400123", sent: 9, usedLate: 3, failed: 1, refused: 5})
			for _, w := range nodes {
				var got sends.LimitCounts
				await.Until(t, fmt.Sprintf("what the client has counted: %+v", s.sum()), func() bool {
					got = w.conversion("unused")
					return got.All == s.sum() && len(got.Keys) == 2
				}, &shownLimit{&got})
				_, page := do(t, http.MethodGet, w.Admin+"/dashboard/conversion", nil)
				share := sends.CountryShare{Limit: "unused", Window: "1d", Verified: s.used["CN"], Of: s.used["CN"], OverHalf: true}
				if ranges := w.conversion("unused-range").Keys; len(ranges) == 0 || ranges[0].Country != "CN" || ranges[0].OfCountry == nil || *ranges[0].OfCountry != share || !strings.Contains(page, "over half of CN") {
					t.Errorf("ranges %+v, want first one of CN with %+v, which the page marks", ranges, share)
				}
				metrics := w.metrics()
				for _, k := range got.Keys {
					country := strings.TrimPrefix(k.Masked, "country=")
					want, open := s.counts(country), s.open[country]
					if k.Counts != want || len(k.Rates) != 2 || k.Rates[1].Open != open || k.Rates[1].Allowed != 9+want.Used-want.Wrong {
						t.Errorf("%s: %+v, want %+v and %d open", country, k, want, open)
					}
					for _, line := range []string{
						fmt.Sprintf("weir_sends_open{country=%q,limit=\"unused\",route=\"send\",window=\"1d\"} %d\n", country, open),
						fmt.Sprintf("weir_limit_allowed{country=%q,limit=\"unused\",route=\"send\",window=\"1d\"} %d\n", country, 9+want.Used-want.Wrong),
						fmt.Sprintf("weir_conversion_ratio{country=%q,limit=\"unused\",route=\"send\"} %v\n", country, want.Ratio),
					} {
						if !strings.Contains(metrics, line) {
							t.Errorf("no %s in the metrics", line)
						}
					}
					row := fmt.Sprintf(`data-label="Sent">%d</td><td class="num" data-label="Used">%d</td>`, want.Sent, want.Used)
					late := fmt.Sprintf(`data-label="Would refuse">%d</td><td class="num" data-label="Of these used">%d</td>`, want.WouldRefuse, want.Wrong)
					if !strings.Contains(page, row) || !strings.Contains(page, late) {
						t.Errorf("the page has no %s or no %s:\n%s", row, late, page)
					}
				}
			}
			total := func(series string) (n int64) {
				for _, w := range nodes {
					_, text := do(t, http.MethodGet, w.Admin+"/metrics", nil)
					for line := range strings.Lines(text) {
						if value, found := strings.CutPrefix(line, series+" "); found {
							var one int64
							fmt.Sscan(value, &one)
							n += one
						}
					}
				}
				return n
			}
			all, labels := s.sum(), `{limit="unused",outcome=%q,route="send"}`
			counted, refunded := total("weir_sends_total"+fmt.Sprintf(labels, "counted")), total("weir_sends_total"+fmt.Sprintf(labels, "refunded"))
			if verified := total("weir_sends_total" + fmt.Sprintf(labels, "verified")); counted-refunded != all.Sent-all.WouldRefuse || verified != all.Used-all.Wrong {
				t.Errorf("metrics: %d counted, %d refunded, %d verified; want %+v", counted, refunded, verified, all)
			}
			if wrong := total(`weir_shadow_wrong_total{limit="unused",route="send"}`); wrong != all.Wrong {
				t.Errorf("metrics: %d wrong; want %d", wrong, all.Wrong)
			}
		})
	}
}

// sendTo sends a code to a phone from a client and returns the status.
func (w *weir) sendTo(phone, client string) int {
	w.t.Helper()
	status, _ := do(w.t, http.MethodPost, w.URL+"/send", http.Header{"X-Phone": {phone}, "X-Client": {client}})
	return status
}

// A code that was sent in an outage of Redis is returned when it is used: in the outage, once Redis has heard of it, and
// on another node.
func TestReturn_OfWhatWasSentInAnOutage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"sliding_log", "gcra"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			config := strings.Replace(redisYAML(server.Addr), "5s", "500ms", 1) + `upstreams: {demo: echo}
keys: {phone: "header:X-Phone", client: "header:X-Client"}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: unused, key: client, rates: [20/1h, 50/1d], algorithm: ` + algorithm + `, return_on: {route: verify, status: [2xx], key: phone}}]
  - {name: verify, match: {methods: [POST], path: /verify}, upstream: demo, limits: [{key: phone, rate: 100/1h}]}
`
			one, other := start(t, config), start(t, config)
			waitForMembership(t, server.Addr, 2)
			used := func(w *weir, phone string) {
				t.Helper()
				if status, _ := do(t, http.MethodPost, w.URL+"/verify", http.Header{"X-Phone": {phone}}); status != 200 {
					t.Fatal(status)
				}
			}
			server.Signal(syscall.SIGSTOP)
			for i := range 9 {
				if status := one.sendTo(fmt.Sprint(i), "c"); status != 200 {
					t.Fatalf("code %d in the outage: %d", i, status)
				}
			}
			used(one, "0")
			used(one, "1")
			server.Signal(syscall.SIGCONT)
			await.Until(t, "Redis has heard of seven in both windows, and of two that were used", func() bool {
				return one.metric(`weir_store_reported_permits_total{result="counted"}`) >= 2*7+2
			})
			for i := 2; i < 5; i++ {
				used(one, fmt.Sprint(i))
			}
			for i := 5; i < 9; i++ {
				used(other, fmt.Sprint(i))
			}
			passed := 0
			await.Until(t, "Redis decides alone", func() bool { return one.checks()["store"] == "ok" && other.checks()["store"] == "ok" })
			for i := range 21 {
				if other.sendTo(fmt.Sprint("later", i), "c") == 200 {
					passed++
				}
			}
			if passed != 20 {
				t.Errorf("%d of 20 codes can be sent after all that were sent in the outage were used", passed)
			}
		})
	}
}
