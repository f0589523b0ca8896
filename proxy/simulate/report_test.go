package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy"
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

func TestReport_TextOfOne(t *testing.T) {
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	r := &Report{Counts: Counts{Lines: 12, Requests: 9, Others: 3}, Notes: []string{"one", "two"}, Result: proxy.ReplayTally{
		Requests: 9, From: from, To: from.Add(time.Hour), Passed: 6, Refused: 3, Unknown: 2, Unmatched: map[string]int64{"no path": 2, "method": 1},
		Routes: []proxy.RouteTally{
			{Name: "sms", Passed: 5, Refused: 3, Unknown: 2, Rejected: map[string]int64{"key missing": 2, "bad path": 1}, Listed: map[string]int64{"deny": 4, "allow": 1}, Waited: 1, Repeated: 2, Returned: 3, Banned: 4, Limits: []proxy.LimitTally{
				{Name: "phone", Rates: []string{"1/1m", "5/1h"}, Mode: "enforce", Passed: 5, Refused: 3, Shadowed: 1, Skipped: 2, Unknown: 7, Top: []proxy.ReplayKey{{Key: "phone=1**", Refused: 2}, {Key: "phone=2**", Refused: 1}}, TopError: 1},
				{Name: "ip", Rates: []string{"9/1m"}, Mode: "shadow", Passed: 8, Top: []proxy.ReplayKey{{Key: "192.0.2.0/24", Refused: 1}}},
			}},
			{Name: "rest", Passed: 1},
		},
	}}
	want := `12 lines, 9 requests from 2026-01-02T02:04:05Z to 2026-01-02T03:04:05Z
3 lines are not requests
no total: of 2 requests the log does not tell whether a limit refuses them (?); at least 4 passed, 3 refused by limits

ROUTE  LIMIT  RATE       MODE     PASSED  REFUSED  SHADOWED  SKIPPED  UNKNOWN
sms                               3+?     3+?
       phone  1/1m 5/1h  enforce  5+?     3+?      1+?       2        7
       ip     9/1m       shadow   8       0        0         0        0
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
	if got, want := written(&Report{Counts: Counts{Lines: 1}}), "1 lines, 0 requests\n0 passed, 0 refused by limits (0 %)\n\nROUTE  LIMIT  RATE  MODE  PASSED  REFUSED  SHADOWED  SKIPPED  UNKNOWN\n"; got != want {
		t.Errorf("of nothing the report says\n%s\nwant\n%s", got, want)
	}
}

func TestReport_TextOfTwo(t *testing.T) {
	limit := func(name, rate string, counts [3]int64) proxy.LimitTally {
		return proxy.LimitTally{Name: name, Rates: []string{rate}, Refused: counts[0], Shadowed: counts[1], Unknown: counts[2]}
	}
	r := &Report{
		Counts: Counts{Lines: 9, Requests: 9}, Config: "a.yaml", Other: "b.yaml",
		Result:  proxy.ReplayTally{Refused: 5, Routes: []proxy.RouteTally{{Name: "sms", Refused: 5, Limits: []proxy.LimitTally{limit("phone", "1/1m", [3]int64{5, 0, 0}), limit("old", "2/1m", [3]int64{1, 1, 0})}}}},
		Against: &proxy.ReplayTally{Refused: 2, Routes: []proxy.RouteTally{{Name: "sms", Refused: 2, Limits: []proxy.LimitTally{limit("new", "3/1m", [3]int64{0, 4, 1}), limit("phone", "9/1m", [3]int64{2, 0, 1})}}, {Name: "more"}}},
	}
	want := `9 lines, 9 requests from 0001-01-01T00:00:00Z to 0001-01-01T00:00:00Z
A is a.yaml, B is b.yaml

ROUTE  LIMIT  RATE A  RATE B  REFUSED A  REFUSED B  DIFFERENCE  SHADOWED A  SHADOWED B  DIFFERENCE  UNKNOWN A  UNKNOWN B
all                           5          2          -3          0           0           0           0          0
sms                           5          2          -3          0           0           0           0          0
sms    phone  1/1m    9/1m    5          2+?        ?           0           ?           ?           0          1
sms    old    2/1m    none    1          0          -1          1           0           -1          0          0
sms    new    none    3/1m    0          ?          ?           0           4+?         ?           0          1
more          none            0          0          0           0           0           0           0          0
`
	if got := written(r); got != want {
		t.Errorf("the report says\n%s\nwant\n%s", got, want)
	}
}

// Whatever the log does not tell, the note says how to log it.
func TestReport_Advice(t *testing.T) {
	for places, want := range map[string]string{
		"header:X-Phone-No, query:a": "log the field X-Phone-No as JSON ($http_x_phone_no in nginx), or name it with --field header:X-Phone-No=NAME",
		"client_ip":                  "log the client's whole address (privacy.log_client: full)",
		"query:user":                 "log the query too, or name it with --field query:user=NAME",
		"path:id":                    "Weir's own log identifies path parameters that are keys by its field keys; see access_log.fields",
		"jwt:sub":                    "only Weir's own log identifies what a token says, by its field keys",
		"plan:quota, header:X-User":  "only Weir's own log has the plan under a limit, in its field keys, if the limit had plans then",
		"host":                       "log the host, or name it with --field host=NAME",
		"json:/a":                    "log it as a JSON field, and name it with --field json:/a=NAME",
	} {
		if got := advice(places); got != want {
			t.Errorf("%s: %q; want %q", places, got, want)
		}
	}
}

func TestPage_Numbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1\u202f000", -999: "-999", -1000: "-1\u202f000", 1234567: "1\u202f234\u202f567", 100000: "100\u202f000"} {
		if got := groupDigits(n); got != want {
			t.Errorf("%d is %q; want %q", n, got, want)
		}
	}
	for want, ab := range map[string][2]int64{"+1\u202f000": {0, 1000}, "-1": {2, 1}, "0": {7, 7}, "+1": {6, 7}} {
		if got := change(ab[0], ab[1], 0, groupDigits); got != want {
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
func withNumbers(t *testing.T, yaml, log string) *Report {
	t.Helper()
	o := Options{Format: Auto, Config: mustLoad(t, yaml), Top: 5, Logs: []Log{{"log", strings.NewReader(log)}}}
	var err error
	if o.Names, err = NewNames([]string{"phone=json:/phone"}, o.Config); err != nil {
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
	text := written(withNumbers(t, codesYAML, own))
	if want := "the log lacks json:/phone, json:/phone: 2 decisions of limits are unknown; Weir's own log has, in its field keys, the keys and prices of the limits with which it was written: serve with this limit, in mode: shadow, and access_log: {fields: [standard]}, and replay what is logged from then on"; !strings.Contains(text, want) {
		t.Errorf("the report says\n%s\nwant\n%s", text, want)
	}
}
