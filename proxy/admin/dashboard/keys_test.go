package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

func TestKeys_ShowsHowAKeyStands(t *testing.T) {
	b := open(t, options())
	b.post("/dashboard/keys", b.form("/dashboard/keys", "key", "phone", "value", "+8613800138000")).shows(t, http.StatusOK,
		"sms.phone", "phone=&#43;86138****8000", "5 of 5 used, 0 left", "One more in 1 min 30 s", "all back in 1 h 0 min", `value="&#43;8613800138000"`, "Reset")
}

func TestKeys_SaysWhatIsWrongWithAKey(t *testing.T) {
	b := open(t, options())
	b.post("/dashboard/keys", b.form("/dashboard/keys", "key", "fone", "value", "1")).shows(t, http.StatusUnprocessableEntity, "the key cannot be looked up: no limit counts by that")
}

func TestKeys_ChangesWhatIsAsked(t *testing.T) {
	query := proxy.KeyQuery{Pairs: []proxy.KeyPair{{Key: "phone", Value: "1"}, {Key: "ip", Value: "::1"}}, Route: "sms", Limit: "phone"}
	for _, test := range []struct {
		form []string
		want proxy.KeyChange
		says string
	}{
		{[]string{"action", "reset", "reason", " asked by phone "}, proxy.KeyChange{Action: proxy.KeyReset, Reason: "asked by phone"}, "what was counted is forgotten"},
		{[]string{"action", "unban"}, proxy.KeyChange{Action: proxy.KeyUnban}, "Unbanned"},
		{[]string{"action", "ban", "for", "2h"}, proxy.KeyChange{Action: proxy.KeyBan, For: proxy.Span(2 * time.Hour)}, "Banned for 2h"},
		{[]string{"action", "grant", "permits", "1500"}, proxy.KeyChange{Action: proxy.KeyGrant, Permits: 1500}, "Granted 1\u202f500 permits"},
	} {
		var got proxy.KeyChange
		var who admin.Operator
		o := options()
		o.Tokens = []admin.Token{{Name: "ann", Text: token, Role: admin.Write}}
		change := o.Change
		o.Change = func(ctx context.Context, c proxy.KeyChange) (proxy.KeyResult, error) {
			got, who = c, admin.OperatorOf(ctx)
			return change(ctx, c)
		}
		b := open(t, o)
		b.login(token)
		form := b.form("/dashboard/keys", append(test.form, "key", "phone", "value", "1", "key", "ip", "value", "::1", "key", "", "value", "", "route", "sms", "limit", "phone")...)
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
		{[]string{"action", "ban", "for", "soon"}, "the duration of a ban needs a unit"},
		{[]string{"action", "grant", "permits", "many"}, "a whole number"},
		{[]string{"action", "reset"}, "nothing was changed: redis is away"},
	} {
		o := options()
		o.Change = func(context.Context, proxy.KeyChange) (proxy.KeyResult, error) {
			return proxy.KeyResult{}, errors.New("redis is away")
		}
		b := open(t, o)
		form := b.form("/dashboard/keys", append(test.form, "key", "phone", "value", "1")...)
		b.post("/dashboard/keys/change", form).shows(t, http.StatusUnprocessableEntity, test.says)
	}
}

func TestExplain_DrawsTheWay(t *testing.T) {
	var asked proxy.ExplainRequest
	o := options()
	explain := o.Explain
	o.Explain = func(ctx context.Context, r proxy.ExplainRequest) (proxy.Explanation, error) {
		asked = r
		return explain(ctx, r)
	}
	b := open(t, o)
	form := b.form("/dashboard/explain", "method", "POST", "url", "/sms", "header", "X-Phone: 1\r\n\r\nX-Phone: 2\r\n", "body", "a=b", "client", "203.0.113.7")
	b.post("/dashboard/explain", form).shows(t, http.StatusOK, "Response by Weir: 429", "limit phone", `class="refused"`)
	if asked.Method != "POST" || asked.URL != "/sms" || asked.Body != "a=b" || asked.Client.String() != "203.0.113.7" || !reflect.DeepEqual(asked.Header, map[string][]string{"X-Phone": {"1", "2"}, "Content-Type": {"application/x-www-form-urlencoded"}}) {
		t.Errorf("got %+v", asked)
	}
	b.post("/dashboard/explain", b.form("/dashboard/explain", "method", "POST", "url", "/sms", "header", "x-phone: 1", "body", `{"phone":"1"}`)).shows(t, http.StatusOK)
	if !reflect.DeepEqual(asked.Header, map[string][]string{"X-Phone": {"1"}, "Content-Type": {"application/json"}}) {
		t.Errorf("got %+v; want the Content-Type that weir explain would send", asked.Header)
	}
	b.get("/dashboard/explain?method=POST&url=/v1/sms/send").shows(t, http.StatusOK, `value="POST"`, `value="/v1/sms/send"`)
	for field, says := range map[string]string{"header": "each line of the header has a colon", "client": "is an IP address"} {
		form := b.form("/dashboard/explain", "method", "GET", "url", "/", field, "nonsense")
		b.post("/dashboard/explain", form).shows(t, http.StatusUnprocessableEntity, says)
	}
}
