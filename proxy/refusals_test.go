package proxy

import (
	"encoding/json"
	"testing"
)

// as reads a field of a log line as what it was written from.
func as[T any](t *testing.T, line map[string]any, field string) (v T) {
	t.Helper()
	text, err := json.Marshal(line[field])
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("%s of %v: %v", field, line, err)
	}
	return v
}

// A loggedRate is a rate that refused, as the log tells.
type loggedRate struct {
	Rate, Key, Masked, Limit string
	Banned                   bool
	ShadowError              bool `json:"unfit"`
}

func TestRefusals_AllThatRefusedAreNamed(t *testing.T) {
	w := newProxy(t, `
keys: {phone: {from: header:X-Phone, sensitive: true}}
`+limitYAML(`{name: phone, key: phone, rates: [1/1h, 2/1d]}, {name: all, key: global, rate: 9/1h}, {name: ip, key: client_ip, rate: 1/1m, penalty: {ban: 1h, after: 1}}`))
	w.sends(200, "GET", "/a", "X-Phone: 13800138000")
	w.sends(429, "GET", "/a", "X-Phone: 13800138000")
	w.sends(429, "GET", "/a", "X-Phone: 2")
	lines := w.lines("request")
	line, also := lines[1], as[[]loggedRate](t, lines[1], "also")
	if line["limit"] != "phone" || line["rate"] != "phone-1h" || line["masked"] == nil || line["banned"] != nil || line["ban_began"] != true {
		t.Errorf("line %v; want phone-1h with its masked key, and that a ban began", line)
	}
	if len(also) != 1 || also[0].Rate != "ip-1m" || also[0].Key == line["key"] || len(also[0].Key) != keyDigits || !also[0].Banned {
		t.Errorf("also %+v; want ip-1m with its own key, banned", also)
	}
	if line := lines[2]; line["rate"] != "ip-1m" || line["banned"] != true || line["also"] != nil {
		t.Errorf("line %v; want the ban of ip-1m alone", line)
	}
	if line := lines[0]; line["rate"] != nil || line["also"] != nil || line["shadow"] != nil {
		t.Errorf("line %v of a request that nobody refused", line)
	}
}

func TestRefusals_OfLimitsInShadowMode(t *testing.T) {
	w := newProxy(t, `
keys: {phone: {from: header:X-Phone, sensitive: true}}
`+limitYAML(`{name: watch, key: phone, rates: [1/1h, 5/1d], mode: shadow}, {name: token, key: header:X-Token, rate: 9/1h, mode: shadow}`))
	w.sends(200, "GET", "/a", "X-Phone: 13800138000", "X-Token: t")
	w.sends(200, "GET", "/a", "X-Phone: 13800138000")
	w.sends(200, "GET", "/a", "X-Phone: 2", "X-Token: t")
	lines := w.lines("request")
	got := as[[]loggedRate](t, lines[1], "shadow")
	if len(got) != 2 || got[0].Rate != "watch-1h" || len(got[0].Key) != keyDigits || got[0].Masked == "" || got[1] != (loggedRate{Limit: "token", ShadowError: true}) {
		t.Errorf("shadow %+v; want watch-1h with its masked key, and that token could not be asked", got)
	}
	if lines[0]["shadow"] != nil || lines[2]["shadow"] != nil || lines[1]["limit"] != nil {
		t.Errorf("lines %v; want shadow in the second alone, which nobody refused", lines)
	}
}
