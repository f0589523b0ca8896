package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
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
	_, text := do(w.t, http.MethodGet, w.Admin+"/api/v1/conversion?limit="+limit, nil)
	var a admin.Conversion
	if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Limits) != 1 {
		w.t.Fatalf("%v: %s", err, text)
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

// A conversion below that of the alerts is told once for the cluster, with the numbers of the API, and no number of a phone.
func TestSends_LowConversionIsToldOnce(t *testing.T) {
	t.Parallel()
	box := new(webhook)
	hook := startBackend(t, box.ServeHTTP)
	config := redisYAML(redistest.Start(t).Addr) + strings.ReplaceAll(sendingYAML, "UPSTREAM", "'"+answering(t).URL+"'")
	config = strings.Replace(config, "    limits:\n", "    limits:\n      - {name: by-number, key: number, rate: 100/1h, return_on: {route: verify, key: number}}\n", 1)
	leader, others := startLeading(t, 2, config)
	s := newSender(t, leader, others[0])
	s.send(sendings{country: "CN", prefix: "+8613800138", sent: 20, usedEarly: 7}) // 35 %
	s.send(sendings{country: "FR", prefix: "+33612345", sent: 8})                  // fewer than 9/1d
	s.send(sendings{country: "GB", prefix: "+447400123", sent: 10, usedEarly: 3})
	var counted sends.LimitCounts
	await.Until(t, "what was sent is counted", func() bool {
		counted = leader.conversion("unused")
		used := int64(0)
		for _, k := range counted.Keys {
			used += k.Used
		}
		return len(counted.Keys) == 3 && counted.All.Sent == 38 && used == 10
	}, &shownLimit{&counted})
	for _, w := range []*weir{leader, others[0]} {
		w.edit(fmt.Sprintf("alerts: {webhook: %q, secret: sixteen-or-more-chars, conversion: 35%%}\n", hook.URL) + config)
		if status, body := w.reload(); status != 200 {
			t.Fatalf("reload: %d %s", status, body)
		}
	}
	await.Until(t, "the webhook has taken it", func() bool { return leader.metric(`weir_alerts_total{kind="conversion",result="sent"}`) == 1 })
	a := box.of("conversion")[0]
	if a.Route != "send" || a.Limit != "unused" || a.Masked != "country=GB" {
		t.Errorf("the alert is %+v; want one of GB", a)
	}
	for _, k := range counted.Keys {
		if k.Masked == "country=GB" && (k.Hash != a.Key || k.Sent != a.Of || k.Used != a.Count || a.Of != 10 || a.Count != 3) {
			t.Errorf("the alert is %+v, and the API says %+v", a, k)
		}
	}
	for _, number := range []string{"447400123000", "8613800138000"} {
		if strings.Contains(box.bodies[0], number) {
			t.Errorf("the alert has %s: %s", number, box.bodies[0])
		}
	}
	for _, want := range []string{`"limit":"by-number"`, `"masked":"number=+86138****80`, `"masked":"ip=192.0.2.1","sent":38,"used":10`} {
		if !strings.Contains(box.bodies[0], want) {
			t.Errorf("the alert has no %s: %s", want, box.bodies[0])
		}
	}
	for _, again := range box.of("conversion") {
		if again.ID != a.ID {
			t.Errorf("there are two alerts: %+v and %+v", a, again)
		}
	}
}
