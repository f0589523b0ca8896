package respond

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestOf_KnowsTheErrorsOfBelow(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{fmt.Errorf("take: %w", limiter.ErrUnavailable), StoreUnavailable},
		{fmt.Errorf("%w: %w", limiter.ErrUnavailable, context.Canceled), StoreUnavailable},
		{limiter.ErrInvalidCost, BadRequest},
		{limiter.ErrInvalidLimit, Internal},
		{fmt.Errorf("read: %w", context.Canceled), ClientGone},
		{&http.MaxBytesError{Limit: 3}, BodyTooLarge},
		{errors.New("secret of the house"), Internal},
	} {
		if got := KindOf(c.err); got != c.want {
			t.Errorf("Of(%v) = %d, want %d", c.err, got, c.want)
		}
		if a := Problem(KindOf(c.err), "", ""); strings.Contains(string(a.Body), "secret") {
			t.Errorf("body %s leaks the error", a.Body)
		}
	}
}

func TestProblem_ReadsWellInAnyDetail(t *testing.T) {
	for _, detail := range []string{"", `"quoted"`, "line\nbreak", "\xff\xfe", "</script>", strings.Repeat("x", 5000)} {
		a := Problem(BadRequest, detail, detail)
		whole(t, a)
		if got := parse(t, a).Detail; got != strings.ToValidUTF8(detail, "\uFFFD\uFFFD") && got != detail {
			t.Errorf("detail %q came back as %q", detail, got)
		}
	}
}

func TestUnavailable_RetryAfterIsRoundedUpAndNeverZero(t *testing.T) {
	for wait, want := range map[time.Duration]string{-time.Second: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		if got := Unavailable(Draining, wait, "", "").Field("Retry-After"); got != want {
			t.Errorf("Retry-After %s for %v, want %s", got, wait, want)
		}
	}
}

// TestAnswer_ThroughNetHTTP sends an answer as a handler of net/http does.
func TestAnswer_ThroughNetHTTP(t *testing.T) {
	a := mustQuota(t, IETF, phone(), day(), hidden()).TooManyRequests(Refusal{Verdict: refused()})
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "text/plain") // replaced
	a.CopyTo(w.Header())
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
	res := w.Result()
	defer res.Body.Close()
	if res.StatusCode != 429 || res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("Retry-After") != "42" {
		t.Errorf("got %s %v", res.Status, res.Header)
	}
}

func TestInto_KeepsLinesOfOneName(t *testing.T) {
	h := http.Header{"A": {"old"}}
	Response{Fields: []Field{{"A", "1"}, {"A", "2"}, {"B", "3"}}}.CopyTo(h)
	same(t, h, http.Header{"A": {"1", "2"}, "B": {"3"}})
	if got := (Response{}).Field("A"); got != "" {
		t.Errorf("field %q of an empty answer", got)
	}
}
