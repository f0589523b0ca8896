package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// written is the report as text, without what tabwriter leaves at the ends of lines.
func written(r *Report) string {
	var b strings.Builder
	r.Text(&b)
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// Only the number that is of the mode of a limit may be unknown.
func TestReport_TextOfOne(t *testing.T) {
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	r := &Report{Counts: Counts{LogCounts: view.LogCounts{Lines: 12, Requests: 9, Others: 3}}, Notes: []string{"one", "two"}, Result: proxy.ReplayTally{
		Requests: 9, From: from, To: from.Add(time.Hour), Passed: 6, Refused: 3, Unknown: 2, Unmatched: map[string]int64{"no path": 2, "method": 1},
		Routes: []proxy.RouteTally{
			{Name: "sms", Passed: 5, Refused: 3, Unknown: 2, Rejected: map[string]int64{"key missing": 2, "bad path": 1}, Listed: map[string]int64{"deny": 4, "allow": 1}, Waited: 1, Repeated: 2, Returned: 3, Banned: 4, Limits: []proxy.LimitTally{
				{Name: "phone", Rates: []string{"1/1m", "5/1h"}, Mode: "enforce", Passed: 5, Refused: 3, Skipped: 2, Unknown: 7, Top: []proxy.ReplayKey{{Key: "phone=1**", Refused: 2}, {Key: "phone=2**", Refused: 1}}, TopError: 1},
				{Name: "ip", Rates: []string{"9/1m"}, Mode: "shadow", Passed: 8, Shadowed: 1, Unknown: 1, Top: []proxy.ReplayKey{{Key: "192.0.2.0/24", Refused: 1}}},
			}},
			{Name: "rest", Passed: 1},
		},
	}}
	want := `12 lines, 9 requests from 2026-01-02T02:04:05Z to 2026-01-02T03:04:05Z
3 lines are not requests
no total: of 2 requests the log does not tell whether a limit refuses them (?); at least 4 passed, 3 refused by limits

ROUTE  LIMIT  RATE       MODE     PASSED  REFUSED  SHADOWED  SKIPPED  UNKNOWN
sms                               ≥3      ≥3
       phone  1/1m 5/1h  enforce  ≥5      ≥3       0         2        7
       ip     9/1m       shadow   ≥8      0        ≥1        0        1
rest                              1       0
sms: 1 rejected: bad path
sms: 2 rejected: key missing
sms: 1 on the list allow
sms: 4 on the list deny
sms: 1 waited for a permit
sms: 2 repeats that are not counted
sms: 3 refunded because of their outcome
sms: 4 started a ban
no route: 1: method
no route: 2: no path

sms.phone, most refused (each may be up to 1 more)
  2  phone=1**
  1  phone=2**

sms.ip, most refused
  1  192.0.2.0/24

note: one
note: two
`
	if got := written(r); got != want {
		t.Errorf("the report says\n%s\nwant\n%s", got, want)
	}
	if got, want := written(&Report{Counts: Counts{LogCounts: view.LogCounts{Lines: 1}}, Notes: []string{"is this a log?"}}), "1 lines, 0 requests\nis this a log?\n"; got != want {
		t.Errorf("of nothing the report says\n%s\nwant\n%s", got, want)
	}
}

func TestReport_TextOfTwo(t *testing.T) {
	limit := func(mode, name, rate string, counts [3]int64) proxy.LimitTally {
		return proxy.LimitTally{Name: name, Mode: mode, Rates: []string{rate}, Refused: counts[0], Shadowed: counts[1], Unknown: counts[2]}
	}
	r := &Report{
		Counts: Counts{LogCounts: view.LogCounts{Lines: 9, Requests: 9}}, Config: "a.yaml", Other: "b.yaml",
		Result:  proxy.ReplayTally{Refused: 5, Routes: []proxy.RouteTally{{Name: "sms", Refused: 5, Limits: []proxy.LimitTally{limit("enforce", "phone", "1/1m", [3]int64{5, 0, 0}), limit("shadow", "old", "2/1m", [3]int64{0, 1, 0})}}}},
		Against: &proxy.ReplayTally{Refused: 2, Unknown: 1, Routes: []proxy.RouteTally{{Name: "sms", Refused: 2, Limits: []proxy.LimitTally{limit("shadow", "new", "3/1m", [3]int64{0, 4, 1}), limit("enforce", "phone", "9/1m", [3]int64{2, 0, 1})}}, {Name: "more"}}},
	}
	want := `9 lines, 9 requests from 0001-01-01T00:00:00Z to 0001-01-01T00:00:00Z
A is a.yaml, B is b.yaml; ? is what the log does not tell

ROUTE  LIMIT  RATE A  RATE B  REFUSED A  REFUSED B  DIFFERENCE  SHADOWED A  SHADOWED B  DIFFERENCE  UNKNOWN A  UNKNOWN B
all                           5          ≥2         ?                                               0          1
sms                           5          2          -3                                              0          0
sms    phone  1/1m    9/1m    5          ≥2         ?           0           0           0           0          1
sms    old    2/1m    none    0          0          0           1           0           -1          0          0
sms    new    none    3/1m    0          0          0           0           ≥4          ?           0          1
more          none            0          0          0                                               0          0
`
	if got := written(r); got != want {
		t.Errorf("the report says\n%s\nwant\n%s", got, want)
	}
}

// Whatever the log does not tell, the note says how to log it.
func TestReport_Advice(t *testing.T) {
	for places, want := range map[string]string{
		"header:X-Phone-No":      "log the field X-Phone-No as JSON ($http_x_phone_no in nginx), or name it with --field header:X-Phone-No=NAME",
		"path:id, query:a":       "Weir's own log identifies path parameters that are keys by its field keys; see access_log.fields; log the query too, or name it with --field query:a=NAME",
		"body":                   "log it as a JSON field, and name it with --field body=NAME",
		"client_ip":              "log the client's whole address (privacy.log_client: full)",
		"query:user":             "log the query too, or name it with --field query:user=NAME",
		"path:id":                "Weir's own log identifies path parameters that are keys by its field keys; see access_log.fields",
		"jwt:sub":                "only Weir's own log identifies what a token says, by its field keys",
		"plan:quota, plan:burst": "only Weir's own log has the plan under a limit, in its field keys, if the limit had plans then",
		"host":                   "log the host, or name it with --field host=NAME",
		"json:/a":                "log it as a JSON field, and name it with --field json:/a=NAME",
	} {
		if got := new(Report).advice(places); got != want {
			t.Errorf("%s: %q; want %q", places, got, want)
		}
	}
}

func TestPage_Numbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -999: "-999", -1000: "-1\u202f000", 1234567: "1\u202f234\u202f567", 100000: "100\u202f000"} {
		if got := view.Count(n); got != want {
			t.Errorf("%d is %q; want %q", n, got, want)
		}
	}
	for want, ab := range map[string][2]int64{"+1\u202f000": {0, 1000}, "-1": {2, 1}, "0": {7, 7}, "+1": {6, 7}} {
		if got := change(ab[0], ab[1], 0, view.Count); got != want {
			t.Errorf("from %d to %d is %q; want %q", ab[0], ab[1], got, want)
		}
	}
}

// codesYAML counts codes that are not used, and money, by country.
const codesYAML = `
keys:
  phone: {from: json:/phone, normalize: e164, sensitive: true}
  country: {of: phone, part: country}
prices: {sms: {key: phone, unit: EUR, rows: ["+49,*,0.08", "*,*,2.1"]}}
upstreams: {demo: echo}
routes:
  - name: send
    match: {path: /send}
    upstream: demo
    limits:
      - {name: unused, key: country, rates: [2/1h, 4/1d], return_on: {route: verify, key: phone}, conversion: 35%}
      - {name: spend, key: country, budget: [0.4/1d], price: sms, mode: shadow}
  - {name: verify, match: {path: /verify}, upstream: demo, limits: [{name: guesses, key: phone, rate: 5/10m}]}
`

// withNumbers simulates a log of which json:/phone is a field.
func withNumbers(t *testing.T, yaml, log string, other ...string) *Report {
	t.Helper()
	o := Options{Format: Auto, Configs: []*config.Config{weirtest.Load(t, yaml)}, Top: 5, Logs: []Log{{"log", strings.NewReader(log)}}}
	for _, yaml := range other {
		o.Configs = append(o.Configs, weirtest.Load(t, yaml))
	}
	var err error
	if o.Names, err = NewNames([]string{"phone=json:/phone"}, o.Configs...); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Of what Weir's own log lacks, the note says that this log can have it.
func TestReport_AdviceForOwnLog(t *testing.T) {
	own := `{"request_id":"A","message":"request","time":"2026-11-22T11:05:20Z","method":"POST","path":"/send","status":200,"keys":"country=DE"}` + "\n"
	for _, other := range [][]string{nil, {codesYAML}} { // what a comparison lacks on both sides is said once
		text := written(withNumbers(t, codesYAML, own, other...))
		if want := "the log lacks json:/phone: 2 decisions of limits are unknown; this log has no costs, and only keys that a limit has read; for a new limit serve it in mode: shadow with access_log: {fields: [standard]}, and replay what is logged from then on"; !strings.Contains(text, want) {
			t.Errorf("the report says\n%s\nwant\n%s", text, want)
		}
	}
}

// plannedLimits has plans that each request says, and plans in a list, on a key that the log shows and
// on one that it does not.
func plannedLimits(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"users": "u1=pro\nu2=partner\n", "addresses": "198.51.100.1=pro\n"} {
		filetest.Write(t, text, dir, name)
	}
	return strings.ReplaceAll(`
client_ip: {trusted_proxies: [192.0.2.9]}
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /a}
    upstream: demo
    limits:
      - {name: said, key: 'header:X-User', rate: 2/1m, plan: 'header:X-Plan', plans: {pro: [6/1m, 40/1h], partner: none}}
      - {name: user, key: 'header:X-User', rate: 3/1m, plan: {list: DIR/users}, plans: {pro: 7/1m, partner: none}, overrides: {u3: 4/1m}}
  - name: b
    match: {path: /b}
    upstream: demo
    limits: [{name: address, key: client_ip, rate: 2/1m, plan: {list: DIR/addresses}, plans: {pro: 6/1m}}]
`, "DIR", dir)
}

// servePlanned serves random requests of four users and clients, each of which changes its plan.
func servePlanned(t *testing.T, yaml string) (log string, served map[proxy.Series]int64) {
	t.Helper()
	c := weirtest.Load(t, yaml)
	var lines bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(t.Context(), proxy.Options{
			Config: c, Store: limiter.NewMemory(limiter.MemoryOptions{}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&lines).Hook(weirStamp{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		random := rand.New(rand.NewPCG(5, 6))
		for range 1000 {
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			r := httptest.NewRequest("GET", []string{"/a", "/a", "/b"}[random.IntN(3)], nil)
			r.Header.Set("X-User", fmt.Sprint("u", random.IntN(5)))
			r.Header.Set("X-Forwarded-For", fmt.Sprint("198.51.100.", random.IntN(3)))
			if plan := []string{"", "pro", "pro", "partner", "gold"}[random.IntN(5)]; plan != "" {
				r.Header.Set("X-Plan", plan)
			}
			r.RemoteAddr = "192.0.2.9:1"
			weirtest.Exchange(p, r)
		}
		served = p.Counts()
	})
	return lines.String(), served
}

// Weir's own log has the plan under each limit, so that a replay gives what was counted while serving.
func TestRun_OwnLogHasPlans(t *testing.T) {
	for name, more := range map[string]string{"shown clients": "", "hidden clients": "privacy: {log_client: none}\n"} {
		t.Run(name, func(t *testing.T) {
			yaml := more + plannedLimits(t)
			log, served := servePlanned(t, yaml)
			got := mustRun(t, yaml, strings.Replace(yaml, "pro: [6/1m, 40/1h]", "pro: 2/1h", 1), log)
			if got.Result.Unknown != 0 || len(got.Notes) > 0 {
				t.Errorf("%d unknown, notes %q", got.Result.Unknown, got.Notes)
			}
			for _, rt := range got.Result.Routes {
				for _, l := range rt.Limits {
					for result, n := range map[string]int64{"allowed": l.Passed, "refused": l.Refused} {
						if want := served[proxy.Series{Route: rt.Name, Limit: l.Name, Result: result}]; n != want || n == 0 {
							t.Errorf("%s.%s: %d %s; served %d", rt.Name, l.Name, n, result, want)
						}
					}
				}
			}
			if was, is := got.Result.Routes[0].Limits[0], got.Against.Routes[0].Limits[0]; is.Refused <= was.Refused || is.Unknown > 0 {
				t.Errorf("%d refused, and %d with lower rates of a plan, %d unknown", was.Refused, is.Refused, is.Unknown)
			}
		})
	}
}

// What an older log lacks of plans is unknown, except of a list and a key that it shows.
func TestRun_LogWithoutPlans(t *testing.T) {
	yaml := plannedLimits(t)
	log, _ := servePlanned(t, yaml)
	log = regexp.MustCompile(` ?plan:[^ "]+`).ReplaceAllString(log, "")
	got := mustRun(t, yaml, "", log)
	a, b := got.Result.Routes[0], got.Result.Routes[1]
	if a.Limits[0].Passed+a.Limits[1].Passed != 0 || a.Limits[0].Unknown == 0 || a.Limits[1].Unknown == 0 || b.Limits[0].Unknown > 0 || b.Limits[0].Refused == 0 {
		t.Errorf("%+v", got.Result.Routes)
	}
	if len(got.Notes) == 0 || !strings.Contains(strings.Join(got.Notes, "\n"), "; plan:said: ") {
		t.Errorf("notes %q; want that plans are missing", got.Notes)
	}
}

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
	c := weirtest.Load(t, yaml)
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
	for _, want := range []string{"no total: of ", fmt.Sprintf("≥%d", phone.Refused), "?"} {
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
