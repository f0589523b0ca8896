package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

func TestKeys_ShowsHowAKeyStands(t *testing.T) {
	b := open(t, options())
	b.post("/dashboard/keys", fields("key", "phone", "value", "+8613800138000")).shows(t, http.StatusOK,
		"sms.phone", "phone=&#43;86138****8000", "5 of 5 used, 0 left", "One more at <time", "UTC</time> (1m30s); all back at <time", "UTC</time> (1h).", `value="&#43;8613800138000"`, "Reset")
}

func TestKeys_SaysWhatIsWrongWithAKey(t *testing.T) {
	b := open(t, options())
	b.post("/dashboard/keys", fields("key", "fone", "value", "1")).shows(t, http.StatusUnprocessableEntity, failed("The key cannot be looked up", "no limit counts by that"))
}

func TestKeys_ChangesWhatIsAsked(t *testing.T) {
	query := view.KeyQuery{Pairs: []view.KeyPair{{Key: "phone", Value: "1"}, {Key: "ip", Value: "::1"}}, Route: "sms", Limit: "phone"}
	for _, test := range []struct {
		form []string
		want view.KeyChange
		says string
	}{
		{[]string{"action", "reset", "reason", " asked by phone "}, view.KeyChange{Action: view.KeyReset, Reason: "asked by phone"}, "what was counted is forgotten"},
		{[]string{"action", "unban", "reason", "r"}, view.KeyChange{Action: view.KeyUnban, Reason: "r"}, "Unbanned"},
		{[]string{"action", "ban", "for", "2h", "reason", "r"}, view.KeyChange{Action: view.KeyBan, For: view.Span(2 * time.Hour), Reason: "r"}, "Banned for 2h"},
		{[]string{"action", "plan", "plan", "pro", "for", "30d", "reason", "paid"}, view.KeyChange{Action: view.KeyAssign, Plan: "pro", For: view.Span(30 * 24 * time.Hour), Reason: "paid"}, "Assigned the plan pro for 30d"},
		{[]string{"action", "unplan", "reason", "unpaid"}, view.KeyChange{Action: view.KeyUnassign, Reason: "unpaid"}, "Ended the assignment of a plan"},
		{[]string{"action", "grant", "permits", "1500", "reason", "r"}, view.KeyChange{Action: view.KeyGrant, Permits: 1500, Reason: "r"}, "Granted 1\u202f500 permits"},
		{[]string{"action", "grant", "permits", "1", "reason", "r"}, view.KeyChange{Action: view.KeyGrant, Permits: 1, Reason: "r"}, "Granted 1 permit<"},
	} {
		var got view.KeyChange
		var who admin.Operator
		o := options()
		o.Tokens = []config.Token{{Name: "ann", Text: token, Write: true}}
		change := o.Change
		o.Change = func(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
			got, who = c, admin.OperatorOf(ctx)
			return change(ctx, c)
		}
		b := open(t, o)
		b.login(token)
		form := fields(append(test.form, "key", "phone", "value", "1", "key", "ip", "value", "::1", "key", "", "value", "", "route", "sms", "limit", "phone", "sure", "yes")...)
		b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, test.says, "on all nodes", "How it stands")
		test.want.KeyQuery = query
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
		if who.Name != "ann" || who.Role != admin.Write || who.Address == "" {
			t.Errorf("got operator %+v", who)
		}
	}
}

func TestKeys_SaysWhyNothingWasChanged(t *testing.T) {
	for _, test := range []struct {
		form []string
		says string
	}{
		{[]string{"action", "ban", "for", "soon", "reason", "r"}, "a duration needs a unit"},
		{[]string{"action", "plan", "plan", "pro", "for", "soon", "reason", "r"}, "a duration needs a unit"},
		{[]string{"action", "plan", "for", "30d", "reason", "r"}, "no plan is chosen"},
		{[]string{"action", "grant", "permits", "many", "reason", "r"}, "a whole number"},
		{[]string{"action", "unban"}, "a reason is missing"},
		{[]string{"action", "reset", "reason", "r", "sure", "yes"}, failed("Nothing was changed", "redis is away")},
	} {
		o := options()
		o.Change = func(context.Context, view.KeyChange) (view.KeyResult, error) {
			return view.KeyResult{}, errors.New("redis is away")
		}
		b := open(t, o)
		form := fields(append(test.form, "key", "phone", "value", "1")...)
		b.post("/dashboard/keys/change", form).shows(t, http.StatusUnprocessableEntity, test.says)
	}
}

// The plans of the limits that count by a key can be assigned to it, and an assignment ended; without plans there are
// no such forms.
func TestKeys_OffersThePlansOfTheKey(t *testing.T) {
	o := options()
	look := func() page {
		b := open(t, o)
		return b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	}
	if p := look(); strings.Contains(p.text, "do-plan") || strings.Contains(p.text, "do-unplan") {
		t.Error("without plans, one can be assigned")
	}
	o.Limits = func(context.Context) (view.Limits, error) {
		return view.Limits{Limits: []view.Limit{{Route: "sms", Name: "phone", Key: "phone", Plans: []string{"free", "pro"}}, {Route: "other", Name: "user", Key: "user", Plans: []string{"gold"}}}}, nil
	}
	p := look()
	p.shows(t, http.StatusOK, "<option>free</option><option>pro</option></select>", `id="do-plan"`, `name="for" value="30d"`)
	if strings.Contains(p.text, "gold") || strings.Contains(p.text, "do-unplan") {
		t.Error("the plan of another key, or the end of no assignment, is offered")
	}
	until := time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC)
	o.Standing = func(context.Context, view.KeyQuery) (view.KeyStanding, error) {
		s := standing(until.Add(-time.Hour))
		s.Limits[0].Plan, s.Limits[0].PlanUntil = "pro", until
		return s, nil
	}
	look().shows(t, http.StatusOK, "plan pro", `assigned until <time datetime="2026-02-01T08:00:00Z">`, `id="do-unplan"`)
}

// sharedKeys are the options of a weir whose keys several operators change.
func sharedKeys() (o admin.Options, done *[]string, trail *[]view.AuditEntry) {
	done, trail = &[]string{}, &[]view.AuditEntry{}
	o = options()
	o.Tokens = []config.Token{{Name: "ann", Text: token, Write: true}, {Name: "ben", Text: "ben-" + token, Write: true}}
	change := o.Change
	o.Change = func(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
		*done = append(*done, string(c.Action))
		return change(ctx, c)
	}
	o.Audit = func(context.Context, view.AuditQuery) (view.Audit, error) { return view.Audit{Entries: *trail}, nil }
	return o, done, trail
}

// follow returns the answer to a form itself, and the page to which it leads.
func (b *browser) follow(path string, form url.Values) (redirect, landed page) {
	b.t.Helper()
	follows := b.http.CheckRedirect
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	redirect = b.post(path, form)
	b.http.CheckRedirect = follows
	return redirect, b.get(redirect.Header.Get("Location"))
}

// Reloading a page repeats nothing, and the address of a page has no key.
func TestKeys_FormsAreAnsweredByARedirect(t *testing.T) {
	o, done, _ := sharedKeys()
	b := open(t, o)
	b.login(token)
	key := []string{"key", "phone", "value", "+8613900139000"}
	grant := fields(append(key, "action", "grant", "permits", "2", "reason", "r")...)
	redirect, landed := b.follow("/dashboard/keys/change", grant)
	redirect.shows(t, http.StatusSeeOther)
	at := redirect.Header.Get("Location")
	if strings.Contains(at, "86139") || !strings.HasPrefix(at, "/dashboard/keys?look=") {
		t.Errorf("led to %s; want an address without the key", at)
	}
	landed.shows(t, http.StatusOK, "Granted 2 permits", "How it stands")
	again := b.get(at)
	again.shows(t, http.StatusOK, "How it stands", `value="&#43;8613900139000"`)
	if strings.Contains(again.text, "Granted") || len(*done) != 1 {
		t.Errorf("reloaded, the page says that it has granted; %v was done", *done)
	}
	b.get("/dashboard/keys?look=other").shows(t, http.StatusGone, "not kept any more")
	looked, _ := b.follow("/dashboard/keys", fields(key...))
	looked.shows(t, http.StatusSeeOther)
	ben := open(t, o)
	ben.login("ben-" + token)
	if p := ben.get(at); p.StatusCode == http.StatusOK || strings.Contains(p.text, "43;86") {
		t.Errorf("got what another operator looked up: %d", p.StatusCode)
	}
}

// A ban and a reset are asked about first, with all that will happen; nothing is done until the answer.
func TestKeys_BanAndResetAskFirst(t *testing.T) {
	for action, asks := range map[string]string{"ban": "Ban phone=&#43;86138****8000 for 2h?", "reset": "Reset phone=&#43;86138****8000?"} {
		o, done, _ := sharedKeys()
		b := open(t, o)
		b.login(token)
		form := fields("key", "phone", "value", "1", "action", action, "for", "2h", "reason", "a flood")
		asked := b.post("/dashboard/keys/change", form)
		asked.shows(t, http.StatusOK, asks, "under sms.phone. Reason: a flood", `name="sure"`, `name="version" value="`)
		if len(*done) > 0 {
			t.Fatalf("%s was done before the answer", action)
		}
		if p := b.get(asked.Request.URL.RequestURI()); strings.Contains(p.text, `name="sure"`) {
			t.Errorf("%s: reloaded, the page asks again", action)
		}
		form.Set("sure", "yes")
		b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "on all nodes")
		if len(*done) != 1 || (*done)[0] != action {
			t.Errorf("%v was done; want %s", *done, action)
		}
	}
}

// Who is about to end a ban of somebody else is told of it.
func TestKeys_SaysWhatSomebodyElseHasDone(t *testing.T) {
	o, done, trail := sharedKeys()
	b := open(t, o)
	b.login(token)
	looked := b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	version := regexp.MustCompile(`name="version" value="([^"]*)"`).FindStringSubmatch(looked.text)
	if version == nil || version[1] == "" {
		t.Fatalf("no version in\n%s", looked.text)
	}
	*trail = []view.AuditEntry{{ID: "7", At: time.Now().Add(-150 * time.Second), Who: "ben", Action: "ban", For: "1h", Reason: "a flood", Hash: "0123456789abcdef", Limits: []string{"sms.phone"}}}
	form := fields("key", "phone", "value", "1", "action", "reset", "reason", "asked", "sure", "yes", "version", version[1])
	b.post("/dashboard/keys/change", form).shows(t, http.StatusConflict, failed("Nothing was changed", "ben banned it for 1h, 2m31s ago (a flood), after you looked"), "How it stands", "<p>Last change: ben banned it", `<option value="a flood">`, `name="version" value="7"`)
	if len(*done) > 0 {
		t.Errorf("%v was done", *done)
	}
	form.Set("version", "7")
	b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "Reset: what was counted is forgotten")
}

// After a change the verdict stands below it, once.
func TestKeys_SayTheVerdictOnce(t *testing.T) {
	o := options()
	change := o.Change
	o.Change = func(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
		r, err := change(ctx, c)
		r.Now = standing(time.Now()).Verdict()
		return r, err
	}
	b := open(t, o)
	p := b.post("/dashboard/keys/change", fields("key", "phone", "value", "1", "action", "grant", "permits", "1", "reason", "asked"))
	if p.shows(t, http.StatusOK, "under 1 limit, on all nodes."); strings.Count(p.text, "efused now by sms.phone") != 1 {
		t.Errorf("the verdict is not there once:\n%s", p.text)
	}
}

// The first line says whether the key is refused; a ban can be ended where there is one.
func TestKeys_BeginsWithAVerdict(t *testing.T) {
	o := options()
	at := time.Date(2026, 1, 31, 7, 26, 0, 0, time.UTC)
	one := standing(at)
	o.Standing = func(context.Context, view.KeyQuery) (view.KeyStanding, error) { return one, nil }
	b := open(t, o)
	look := func() page { return b.post("/dashboard/keys", fields("key", "phone", "value", "1")) }
	p := look()
	p.shows(t, http.StatusOK, `<p class="banner warn" id="verdict"><strong>Refused now by sms.phone 5/1h until <time datetime="2026-01-31T07:27:30Z">07:27:30 UTC</time> (1m30s).</strong>`)
	if strings.Contains(p.text, `id="do-unban"`) {
		t.Error("a key that is not banned can be unbanned")
	}
	one.Limits[0].BannedUntil = at.Add(38 * time.Minute)
	look().shows(t, http.StatusOK, `Refused now by sms.phone (banned) until <time datetime="2026-01-31T08:04:00Z">08:04:00 UTC</time> (38m).`, `id="do-unban"`)
	one.Limits[0].BannedUntil, one.Limits[0].Windows[0].Left = time.Time{}, 3
	look().shows(t, http.StatusOK, `<p class="banner good" id="verdict"><strong>Passes now: each enforced limit by this key has permits left.</strong>`)
}

func TestExplain_DrawsTheWay(t *testing.T) {
	var asked view.ExplainRequest
	o := options()
	explain := o.Explain
	o.Explain = func(ctx context.Context, r view.ExplainRequest) (view.Explanation, error) {
		asked = r
		return explain(ctx, r)
	}
	b := open(t, o)
	form := fields("method", "POST", "url", "/sms", "header", "X-Phone: 1\r\n\r\nX-Phone: 2\r\n", "body", "a=b", "client", "203.0.113.7")
	b.post("/dashboard/explain", form).shows(t, http.StatusOK, "Response by Weir: 429", "limit phone", `class="refused"`)
	if asked.Method != "POST" || asked.URL != "/sms" || asked.Body != "a=b" || asked.Client.String() != "203.0.113.7" || !reflect.DeepEqual(asked.Header, map[string][]string{"X-Phone": {"1", "2"}, "Content-Type": {"application/x-www-form-urlencoded"}}) {
		t.Errorf("got %+v", asked)
	}
	b.post("/dashboard/explain", fields("method", "POST", "url", "/sms", "header", "x-phone: 1", "body", `{"phone":"1"}`)).shows(t, http.StatusOK)
	if !reflect.DeepEqual(asked.Header, map[string][]string{"X-Phone": {"1"}, "Content-Type": {"application/json"}}) {
		t.Errorf("got %+v; want the Content-Type that weir explain would send", asked.Header)
	}
	o.Explain = func(context.Context, view.ExplainRequest) (view.Explanation, error) {
		return view.Explanation{Others: []view.ExplainedOther{{Name: "sms", Because: []string{"its path is another"}}}, Answer: &view.ExplainedAnswer{Status: 404}}, nil
	}
	other := open(t, o)
	refused := view.Explanation{Decision: view.ExplainedDecision{Asked: true, WaitMS: 9000, By: []string{"ip", "phone"}}, Answer: &view.ExplainedAnswer{Status: 429, Header: map[string][]string{"Retry-After": {"9"}}}, Limits: []view.ExplainedLimit{
		{Limit: view.Limit{Name: "ip", Mode: "enforce"}, Asked: true, Windows: []view.ExplainedWindow{{Rate: "5/1h", Most: 5, Remaining: 1}}}, {Limit: view.Limit{Name: "all", Mode: "enforce"}, Asked: true, Allowed: true}, {Limit: view.Limit{Name: "try", Mode: "shadow"}, Asked: true}, {Limit: view.Limit{Name: "phone", Mode: "enforce"}, Asked: true},
	}}
	o.Explain = func(context.Context, view.ExplainRequest) (view.Explanation, error) { return refused, nil }
	who := open(t, o)
	who.post("/dashboard/explain", fields("method", "GET", "url", "/a")).shows(t, http.StatusOK, "Response by Weir: 429: ip, phone</h2>", "Refused by <strong>ip, phone</strong>; the answer says to come back in 9s.", "5/1h: 4 of 5 used, 1 left")
	refused.Decision.By = nil
	who.post("/dashboard/explain", fields("method", "GET", "url", "/a")).shows(t, http.StatusOK, "Refused; the answer says to come back in 9s.")
	other.post("/dashboard/explain", fields("method", "GET", "url", "/a")).shows(t, http.StatusOK, "No route matches.", "<details open><summary>Why not another route", "its path is another")
	b.get("/dashboard/explain?method=POST&url=/v1/sms/send").shows(t, http.StatusOK, `value="POST"`, `value="/v1/sms/send"`)
	for field, says := range map[string]string{"header": "each line of the header has a colon", "client": "is an IP address"} {
		form := fields("method", "GET", "url", "/", field, "nonsense")
		b.post("/dashboard/explain", form).shows(t, http.StatusUnprocessableEntity, says)
	}
}

// A card says one thing: what is used, left and allowed agree and have their unit, and nothing is "not used" that is; after a
// change the page ends with what holds, and says so if there was nothing to end.
func TestKeys_ACardSaysOneThing(t *testing.T) {
	o := options()
	at := time.Date(2026, 1, 31, 7, 26, 0, 0, time.UTC)
	one := standing(at)
	one.Limits[0].Windows = []view.WindowStanding{
		{Name: "a", Rate: "10/1h", Most: 1191, Used: 214, Left: 977, Conversion: &view.ConversionStanding{Allowed: 1191, Confirmed: 1181}},
		{Name: "b", Rate: "400 EUR/1d", Most: 40_000_000, Used: 7_123_500, Left: 32_876_500, Next: at.Add(time.Hour), Amounts: &view.Amounts{Most: "400 EUR", Used: "71.235 EUR", Left: "328.765 EUR"}},
		{Name: "c", Rate: "1s 1h", Most: 1, Used: 2, Left: 1, Amounts: &view.Amounts{Used: "step 2", Left: "1"}},
		{Name: "d", Rate: "4 at a time", Most: 4, Left: 4},
	}
	o.Standing = func(context.Context, view.KeyQuery) (view.KeyStanding, error) { return one, nil }
	result := view.KeyResult{At: at, Everywhere: true, Now: view.KeyVerdict{Refused: true, Text: "still refused by the ban of 203.0.113.0/24 until 08:04:00 UTC (38m)"}, Changed: []view.LimitStanding{{Unaffected: true}}}
	o.Change = func(context.Context, view.KeyChange) (view.KeyResult, error) { return result, nil }
	b := open(t, o)
	p := b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	p.shows(t, http.StatusOK, "<span>214 of 1\u202f191 used, 977 left</span>", "<strong>10/1h</strong><small>now 1\u202f191, by 1\u202f181 verified</small>",
		"<span>71.235 EUR spent, 328.765 EUR left</span>", "<span>step 2, passes</span>", "<span>0 of 4 used, 4 left</span>", "hash <span")
	if n := strings.Count(p.text, "Nothing is used."); n != 1 || strings.Contains(p.text, "7\u202f123\u202f500") {
		t.Errorf("nothing is used %d times, want once, and amounts as money, in\n%s", n, p.text)
	}
	// A banned key neither passes nor waits, and its count of refusals has begun anew with the ban.
	one.Limits[0].BannedUntil, one.Limits[0].Penalty = at.Add(time.Hour), &view.PenaltyStanding{After: 3, Ban: view.Span(time.Hour)}
	p = b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	p.shows(t, http.StatusOK, "Banned until", "<span>step 2</span>", ">3 refusals ban it for 1h.<")
	// In shadow mode nobody is banned.
	one.Limits[0].Mode = "shadow"
	p = b.post("/dashboard/keys", fields("key", "phone", "value", "1"))
	p.shows(t, http.StatusOK, `<p class="banner shadow">In shadow mode: it would be banned until <time`, ">3 refusals would ban it for 1h.<", `class=" shadow"`)
	if strings.Contains(p.text, "Banned until") {
		t.Errorf("what would be banned looks as if it were, in\n%s", p.text)
	}
	one.Limits[0].BannedUntil, one.Limits[0].Penalty, one.Limits[0].Mode = time.Time{}, nil, "enforce"
	one.Limits[0].Store = "local"
	one.Limits = append(one.Limits, view.LimitStanding{Mode: "enforce", Unknown: "redis is unreachable"})
	b.post("/dashboard/keys", fields("key", "phone", "value", "1")).shows(t, http.StatusOK, "<span>0 of 4 used, 4 left: this node's share</span>", "Nothing is used here; what other nodes count is not known.",
		`<p class="banner warn" id="verdict"><strong>Not known: 1 of 2 limits cannot be read.`)
	one.Limits[1].Route, one.Limits[1].Limit, one.Limits[1].Denies = "sms", "spend", true // it refuses, and that is known
	b.post("/dashboard/keys", fields("key", "phone", "value", "1")).shows(t, http.StatusOK, "Refused now by sms.spend while Redis is unreachable.")
	one.Limits = one.Limits[:1]
	form := fields("key", "phone", "value", "1", "action", "unban", "reason", "asked")
	b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "<strong>There was nothing to end</strong> under 1 limit.", "Still refused by the ban of 203.0.113.0/24 until <time")
	form.Set("action", "grant")
	form.Set("permits", "9")
	result.Action = view.KeyGrant
	b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "<strong>Nothing was granted: no permit is used</strong> under 1 limit.")
	result.Changed = []view.LimitStanding{{Windows: []view.WindowStanding{{Granted: 3}}}}
	b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "<strong>Granted 3 permits</strong>, under 1 limit, on all nodes.")
	form.Set("action", "unban")
	result.Changed[0].Unaffected, result.Everywhere, result.Behind = false, false, []string{"node-b"}
	b.post("/dashboard/keys/change", form).shows(t, http.StatusOK, "Unbanned: what was counted stays</strong>, under 1 limit, on all nodes but node-b, not heard from")
	one.Limits[0].Windows = []view.WindowStanding{{Rate: "3/1h", Most: 3, Used: 3, Next: at.Add(time.Hour - 20*time.Millisecond), Full: at.Add(time.Hour)}}
	b.post("/dashboard/keys", fields("key", "phone", "value", "1")).shows(t, http.StatusOK, `>All back at <time datetime="2026-01-31T08:26:00Z">08:26:00 UTC</time> (1h).<`)
}

// The audit trail has no column that is empty, and links keep their place whichever is current.
func TestAudit_HasNoEmptyColumn(t *testing.T) {
	o := options()
	entry := view.AuditEntry{ID: "7", At: time.Now(), Who: "ben", Action: "ban", For: "1h"}
	o.Audit = func(context.Context, view.AuditQuery) (view.Audit, error) {
		return view.Audit{Entries: []view.AuditEntry{entry}}, nil
	}
	b := open(t, o)
	if p := b.get("/dashboard/audit"); strings.Contains(p.text, "Reason") || !strings.Contains(p.text, `data-name="Audit">Audit</a>`) {
		t.Errorf("want no reasons, and links with their names, in\n%s", p.text)
	}
	entry.Reason, entry.Behind = "a flood", []string{"node-b", "node-c"}
	b.get("/dashboard/audit").shows(t, http.StatusOK, `<th scope="col">Reason</th>`, `<td data-label="Reason">a flood</td>`, "not heard from: node-b, node-c</span>")
	entry.Action, entry.For, entry.Masked, entry.Detail = "plan", "30d", "user=a", "pro, on all nodes since 2026-01-31 07:26:00 UTC, when redis was back"
	b.get("/dashboard/audit").shows(t, http.StatusOK, "<strong>plan</strong> for 30d", `user=a<span class="sub">pro, on all nodes since <time`)
}

// An operator reads why a store cannot be reached, not the errors of a program.
func TestPages_SayWhyInWords(t *testing.T) {
	o := options()
	o.Nodes = func(context.Context) (admin.Nodes, error) {
		return admin.Nodes{}, fmt.Errorf("read nodes: %w: %w", errors.New("redis circuit breaker open"), context.DeadlineExceeded)
	}
	b := open(t, o)
	b.get("/dashboard/nodes").shows(t, http.StatusOK, failed("Nodes cannot be listed", "redis is unreachable: no answer in time"))
}
