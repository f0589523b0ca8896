package simulate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// usesYAML counts codes that are not used, and money, by country.
const usesYAML = `
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

// codesLog has six requests for codes in Germany, and the codes of the first and the fifth are entered.
func codesLog() string {
	var b strings.Builder
	line := func(second int, path string, n int) {
		fmt.Fprintf(&b, `{"time":"2026-11-22T11:05:%02dZ","method":"POST","uri":"%s","status":200,"json:/phone":"+49151234567%02d"}`+"\n", second, path, n)
	}
	for n := range 6 {
		line(n, "/send", n)
	}
	line(20, "/verify", 0)
	line(21, "/verify", 4)
	return b.String()
}

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

// The report tells of codes and of money by key: as text, as a page, and as JSON.
func TestReport_Uses(t *testing.T) {
	r := withNumbers(t, usesYAML, codesLog())
	want := `
send.unused, what was sent
  KEY         SENT  USED  CONVERSION  REFUSED  USED LATER  RATES FOR USED  RATES FOR ALL  COST      SAVED
  all         6     2     33.33 %     4        1           5/1h 5/1d       6/1h 6/1d      0.48 EUR  0.32 EUR
  country=DE  6     2     33.33 %     4        1           5/1h 5/1d       6/1h 6/1d      0.48 EUR  0.32 EUR
  of 4 different values of phone that were refused, 1 used what was sent (25.00 %); of all 6, 2 did

send.spend, what was sent
  KEY         SENT  USED  CONVERSION  REFUSED  USED LATER  COST      SAVED     SPENT
  all         6     2     33.33 %     1        0           0.48 EUR  0.08 EUR  0.48 EUR
  country=DE  6     2     33.33 %     1        0           0.48 EUR  0.08 EUR  0.48 EUR
  of 1 different values of phone that were refused, 0 used what was sent (0.00 %); of all 6, 2 did
`
	if got := written(r); !strings.Contains(got, want) || len(r.Notes) > 0 {
		t.Errorf("notes %q; the report says\n%s\nwant\n%s", r.Notes, got, want)
	}
	var page strings.Builder
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h3>send.unused, what was sent</h3>", "<td class=\"n\">0.32 EUR</td>", "<th class=\"n\">Rates for used</th>", "of 4 different values of phone"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	var said struct {
		Result struct {
			Routes []struct {
				Limits []struct{ Uses map[string]any }
			}
		}
	}
	if err := json.Unmarshal(mustJSON(t, r), &said); err != nil {
		t.Fatal(err)
	}
	uses := said.Result.Routes[0].Limits[0].Uses
	for name, want := range map[string]any{"by": "verify", "subject": "phone", "sent": 6.0, "used": 2.0, "refused": 4.0, "refused_used": 1.0, "saved": 32000.0, "decimals": 5.0, "unit": "EUR"} {
		if uses[name] != want {
			t.Errorf("%s is %v; want %v", name, uses[name], want)
		}
	}
}

// Without what tells of uses, the report says what is missing, and only what is known.
func TestReport_UsesThatTheLogDoesNotTell(t *testing.T) {
	log := codesLog()
	sends := log[:strings.Index(log, `{"time":"2026-11-22T11:05:20Z"`)]
	for name, c := range map[string]struct{ yaml, log, note, has, hasNot string }{
		"no requests to verify": {usesYAML, sends, "the log has no request of route verify, whose responses return permits (return_on): what was used is unknown, and the limits of route send count everything as unused; name the logs that have these requests too", "  all         6     6/1h 6/1d      0.48 EUR", "CONVERSION"},
		"no such status":        {usesYAML, strings.ReplaceAll(log, `"/verify","status":200`, `"/verify","status":403`), "no request of route verify has a status of return_on in the log: nothing was used", "RATES FOR ALL", "CONVERSION"},
		"no number to verify":   {usesYAML, sends + `{"time":"2026-11-22T11:05:20Z","method":"POST","uri":"/verify","status":200}` + "\n", "of 1 of 1 responses of route verify the log lacks json:/phone, so that they return nothing; log it as a JSON field, and name it with --field json:/phone=NAME", "RATES FOR ALL", "CONVERSION"},
		"no return_on":          {strings.Replace(usesYAML, "      - {name: unused", "      # - {name: unused", 1), log, "limit send.spend: no limit of its route has return_on, so it is unknown what was used of what the budget refuses; write one, with mode: shadow", "SPENT", "USED LATER"},
	} {
		r := withNumbers(t, c.yaml, c.log)
		text := written(r)
		if !strings.Contains(text, "note: "+c.note+"\n") || !strings.Contains(text, c.has) || strings.Contains(text, c.hasNot) {
			t.Errorf("%s: the report says\n%s\nwant %q and the note\n%s", name, text, c.has, c.note)
		}
	}
	refused := strings.Replace(log, `"status":200`, `"status":429`, 2)
	if text, want := written(withNumbers(t, usesYAML, refused)), "note: limit send.unused: 2 of 6 requests were refused when the log was written"; !strings.Contains(text, want) {
		t.Errorf("the report says\n%s\nwant\n%s", text, want)
	}
	own := `{"request_id":"A","message":"request","time":"2026-11-22T11:05:20Z","method":"POST","path":"/send","status":200,"keys":"country=DE"}` + "\n"
	text := written(withNumbers(t, usesYAML, own))
	if want := "the log lacks json:/phone, json:/phone: 2 decisions of limits are unknown; Weir's own log has, in its field keys, the keys and prices of the limits with which it was written: serve with this limit, in mode: shadow, and access_log: {fields: [standard]}, and replay what is logged from then on"; !strings.Contains(text, want) {
		t.Errorf("the report says\n%s\nwant\n%s", text, want)
	}
}
