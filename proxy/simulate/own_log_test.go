package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/test/weirtest"
)

// ownLimits has a limit of each kind whose keys a line of Weir's own log does not show.
const ownLimits = `
client_ip: {trusted_proxies: []}
keys:
  phone: {from: json:/phone, sensitive: true, normalize: {as: e164, default_region: CN}}
  country: {of: phone, part: country}
  range: {of: phone, part: prefix, drop_last: 1}
  device: {from: header:X-Device, on_missing: skip}
  both: {join: [phone, client_ip]}
lists:
  staff: {key: phone, action: bypass, values: ["+8613800138000"]}
  bad: {key: phone, action: deny, values: ["+8613800138001"]}
prices: {sms: {key: phone, unit: EUR, rows: ["+861380013800,*,0.2", "+86,*,0.1", "*,*,5"]}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /send, methods: [POST, OPTIONS]}
    upstream: demo
    lists: [staff, bad]
    limits:
      - {name: phone, key: phone, rates: [2/1m, 9/10m], overrides: {"+8613800138002": [3/1m]}}
      - {name: device, key: device, rate: 2/1m, mode: shadow}
      - {name: both, key: both, rate: 1/10s}
      - {name: spread, key: client_ip, distinct: phone, rate: 3/5m}
  - name: text
    match: {path: /text}
    upstream: demo
    limits: [{name: range, key: range, rate: 60/5m}, {name: country, key: country, rate: 1/1h, overrides: {CN: [18/1m]}}]
  - name: code
    match: {path: /code}
    upstream: demo
    limits:
      - {name: unused, key: country, rate: 5/5m, return_on: {route: check, key: phone}, conversion: 50%, mode: enforce}
      - {name: spend, key: country, budget: [1/3m], price: sms, mode: shadow}
  - {name: odd, match: {path: /odd}, upstream: demo, limits: [{name: device, key: device, rate: 5/1m}]}
  - {name: check, match: {path: /check}, upstream: demo, limits: [{key: phone, rate: 2/1m}]}
`

// serveRandom serves random requests over some minutes by a configuration, and returns the log and what was
// counted.
func serveRandom(t *testing.T, yaml string) (log string, served map[proxy.Series]int64) {
	t.Helper()
	c := mustLoad(t, yaml)
	var lines bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(t.Context(), proxy.Options{
			Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&lines).Hook(weirStamp{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		random := rand.New(rand.NewPCG(3, 4))
		for range 1500 {
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			body := fmt.Sprintf(`{"phone":"138 0013 80%02d"}`, random.IntN(9))
			if random.IntN(20) == 0 {
				body = `{"phone":"?"}` // 400
			}
			r := httptest.NewRequest([]string{"POST", "POST", "POST", "OPTIONS"}[random.IntN(4)], []string{"/send", "/send", "/text", "/odd", "/code", "/check"}[random.IntN(6)], strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if r.Method == "OPTIONS" {
				r = httptest.NewRequest(r.Method, r.URL.Path, nil)
				r.Header.Set("Origin", "https://a.example")
				r.Header.Set("Access-Control-Request-Method", "POST")
			}
			if n := random.IntN(4); n > 0 {
				r.Header.Set("X-Device", fmt.Sprint(n))
			}
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", random.IntN(3))
			weirtest.Exchange(p, r)
		}
		served = p.Counts()
	})
	return lines.String(), served
}

// Weir's own log identifies keys that it does not show, so that its replay by the same configuration
// gives exactly what was counted while serving.
func TestRun_OwnLogIdentifiesKeys(t *testing.T) {
	for name, more := range map[string]string{
		"salted": "", "secret": "privacy: {hash_secret: " + strings.Repeat("s", 32) + "}\n",
		"network of clients": "privacy: {log_client: network}\n", "no clients": "privacy: {log_client: none}\n",
	} {
		t.Run(name, func(t *testing.T) {
			yaml := more + ownLimits
			log, served := serveRandom(t, yaml)
			got := mustRun(t, yaml, "", log)
			if got.Requests != 1500 || got.Result.Unknown != 0 || len(got.Notes) > 0 {
				t.Errorf("%+v, %d unknown, notes %q", got.Counts, got.Result.Unknown, got.Notes)
			}
			for _, rt := range got.Result.Routes {
				if rt.Unlisted > 0 || rt.Name == "send" && (rt.Listed["staff"] == 0 || rt.Listed["bad"] == 0 || rt.Exempt == 0 || len(rt.Rejected) == 0) {
					t.Errorf("%s: %+v", rt.Name, rt)
				}
				for _, l := range rt.Limits {
					for result, n := range map[string]int64{"allowed": l.Passed, "refused": l.Refused, "shadow_refused": l.Shadowed} {
						if want := served[proxy.Series{Route: rt.Name, Limit: l.Name, Result: result}]; n != want {
							t.Errorf("%s.%s: %d %s; served %d", rt.Name, l.Name, n, result, want)
						}
					}
					if l.Unknown > 0 || l.Refused+l.Shadowed == 0 {
						t.Errorf("%s.%s: %d unknown, and %d refused: nothing was tested", rt.Name, l.Name, l.Unknown, l.Refused+l.Shadowed)
					}
				}
			}
		})
	}
}

// A line says which limit refused it, so that a limit that cannot be known refuses it too, and is unknown
// of the others.
func TestRun_OwnLogWithoutKeys(t *testing.T) {
	log, served := serveRandom(t, "access_log: {fields: [request_id, route, method, host, path, status, client, upstream, limit, list]}\n"+ownLimits)
	got := mustRun(t, ownLimits, "", log)
	send := got.Result.Routes[0]
	phone := send.Limits[0]
	if want := served[proxy.Series{Route: "send", Limit: "phone", Result: "refused"}]; phone.Refused == 0 || phone.Refused > want || phone.Passed != 0 || phone.Unknown == 0 || send.Unknown == 0 || got.Result.Unknown < send.Unknown {
		t.Errorf("%+v of %+v; served %d refused", phone, send, want)
	}
	if send.Listed["bad"] == 0 || send.Listed["staff"] == 0 {
		t.Errorf("lists %v", send.Listed)
	}
	text := written(got)
	for _, want := range []string{"no total: of ", fmt.Sprintf("%d+?", phone.Refused), "?"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report says\n%s\nwant %q", text, want)
		}
	}
}

// With a secret, rates for single keys can be tried on a log that was written before them.
func TestRun_OwnLogTriesOverrides(t *testing.T) {
	yaml := "privacy: {hash_secret: " + strings.Repeat("s", 32) + "}\n" + ownLimits
	log, _ := serveRandom(t, yaml)
	got := mustRun(t, yaml, strings.Replace(yaml, `{"+8613800138002": [3/1m]}`, `{"+8613800138002": [3/1m], "+8613800138003": [1/1h]}`, 1), log)
	if a, b := got.Result.Routes[0].Limits[0], got.Against.Routes[0].Limits[0]; a.Refused >= b.Refused || b.Unknown > 0 {
		t.Errorf("%d refused, and %d with a lower rate for one phone, %d unknown", a.Refused, b.Refused, b.Unknown)
	}
}

// A log of samples cannot give the counts of the run, which is said.
func TestRun_OwnLogOfSamples(t *testing.T) {
	yaml := "access_log: {sample: 7}\n" + ownLimits
	log, _ := serveRandom(t, yaml)
	if got := mustRun(t, yaml, "", log); got.Samples == 0 || !strings.Contains(got.Notes[0], "stand for several requests") {
		t.Errorf("%+v, notes %q", got.Counts, got.Notes)
	}
}

// What identifies the keys of a line takes at most 60 bytes of it under the limits of README.md.
func TestRun_OwnLogKeysAreShort(t *testing.T) {
	log, _ := serveRandom(t, strings.Replace(ownLimits, "    limits:\n", `    limits:
      - {name: range, key: range, rate: 90/1m}
      - {name: country, key: country, rate: 1/1h, overrides: {CN: [90/1m]}}
      - {name: spread, key: client_ip, distinct: phone, rate: 3/5m}
  - name: more
    match: {path: /more}
    upstream: demo
    limits:
`, 1))
	most := 0
	for line := range strings.Lines(log) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if keys := fields["keys"]; keys != nil {
			most = max(most, len(`,"keys":`)+len(keys))
		}
	}
	if most == 0 || most > 60 {
		t.Errorf("%d bytes", most)
	}
}
