package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/view"
)

const maskedConfig = `
keys:
  partner: "header:X-Partner"
  phone: {from: "header:X-Phone", sensitive: true, normalize: {as: e164, default_region: CN}}
  range: {of: phone, part: prefix, drop_last: 4}
  country: {of: phone, part: country}
routes:
  - name: send
    match: {path: /send}
    respond: {body: ok}
    limits:
      - {name: partner, key: partner, rate: 1/1h}
      - {name: phone, key: phone, rate: 1/1h}
      - {name: range, key: range, rate: 1/1h}
      - {name: country, key: country, rate: 1/1h, overrides: {CN: 20/1h}}
`

// One rule says what is shown of a key, wherever it is shown: a key that is not sensitive in clear, a
// sensitive one masked, a range of numbers without what is personal.
func TestMasked_OneRuleEverywhere(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	lines := []string{"X-Partner: acme", "X-Phone: 13800138000"}
	w.sends(200, "GET", "/send", lines...)
	w.sends(429, "GET", "/send", lines...)
	want := map[string]string{"partner": "partner=acme", "phone": "phone=+86138****8000", "range": "range=+861380013", "country": "country=CN"}
	ids := map[string]string{}

	for _, l := range w.Decisions(view.DecisionQuery{Outcome: "refused"})[0].Limits {
		if l.Masked != want[l.Limit] {
			t.Errorf("decisions: %s is shown as %q; want %q", l.Limit, l.Masked, want[l.Limit])
		}
		ids[l.Limit] = l.ID
	}
	for _, l := range w.Top(view.TopQuery{}).Limits {
		if got := l.Requests.Keys[0].Masked; got != want[l.Limit] {
			t.Errorf("top: %s is shown as %q; want %q", l.Limit, got, want[l.Limit])
		}
	}
	for name, value := range map[string]string{"partner": "acme", "phone": "13800138000", "range": "+861380013", "country": "CN"} {
		for how, pair := range map[string]string{"value": name + "=" + value, "id": name + "=" + ids[name]} {
			if got := w.stands(pair)["send."+name].Masked; got != want[name] {
				t.Errorf("state by %s: %s is shown as %q; want %q", how, name, got, want[name])
			}
		}
	}
	e := w.explains("GET", "/send", lines...)
	for _, k := range e.Keys {
		if k.Value != want[k.Name] {
			t.Errorf("explain: %s is shown as %q; want %q", k.Name, k.Value, want[k.Name])
		}
	}
	if log := w.log.String(); strings.Contains(log, "acme") || strings.Contains(log, "13800138000") {
		t.Errorf("the log has a key in clear:\n%s", log)
	}
	if strings.Contains(fmt.Sprint(w.Decisions(view.DecisionQuery{}), w.Top(view.TopQuery{}), e.Keys, e.Limits), "13800138000") {
		t.Error("a sensitive key is shown in clear")
	}
}

// A key named by its id is the key named by its value: with the rates of its override, and masked.
func TestMasked_AnIDKeepsTheOverride(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	w.sends(200, "GET", "/send", "X-Partner: a", "X-Phone: 13800138000")
	byValue := w.stands("country=CN")["send.country"]
	byID := w.stands("country=" + byValue.ID)["send.country"]
	if byID.Windows[0] != byValue.Windows[0] || byID.Windows[0].Rate != "20/1h" || byID.Masked != "country=CN" {
		t.Errorf("by id: %+v; by value: %+v", byID, byValue)
	}
	other := newRememberingProxy(t, maskedConfig)
	other.sends(200, "GET", "/send", "X-Partner: a", "X-Phone: 13800138000")
	unknown := other.stands("country=JP")["send.country"]
	if got := other.stands("country=" + unknown.ID)["send.country"]; got.Masked != "country" || got.Windows[0].Rate != "1/1h" {
		t.Errorf("an id of which no request is remembered is shown as %+v; want the name of the key", got)
	}
}

// What is kept has no key in clear: neither the log of operators' actions nor the audit trail.
func TestMasked_WhatIsKeptIsMaskedInAnyCase(t *testing.T) {
	w := newRememberingProxy(t, maskedConfig)
	w.sends(200, "GET", "/send", "X-Partner: acme-corporation", "X-Phone: 13800138000")
	id := w.stands("partner=acme-corporation")["send.partner"].ID
	for _, pair := range []string{"partner=acme-corporation", "partner=" + id} {
		got := w.stands(pair)["send.partner"]
		if got.Masked != "partner=acme-corporation" || got.Logged != "partner=acme****tion" {
			t.Errorf("%s is shown as %q, and kept as %q; want it masked where it is kept", pair, got.Masked, got.Logged)
		}
		if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "acme****") {
			t.Errorf("%s, %v; want one form in the answer", text, err)
		}
	}
}
