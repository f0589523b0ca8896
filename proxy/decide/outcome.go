package decide

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/respond"
)

// maxReport is the maximum length of the body of a report.
const maxReport = 16 << 10

// A report is the status of the response to a request, whose handle the peer or the application has.
type report struct {
	Handle string `json:"handle"`
	Status int    `json:"status"`
	refund bool   // the permits are refunded, whatever the status
	cost   int64  // what the request has cost after all, or 0
	less   int64  // how much less than what was taken, or 0
}

// errReport reports that a report cannot be read.
var errReport = errors.New(`write ?handle=HANDLE&status=STATUS, or {"handle": "HANDLE", "status": STATUS} with Content-Type: application/json`)

// serveOutcome answers a report: 204 if the outcome was acted upon.
func (h *Handler) serveOutcome(x *http1.Exchange) {
	if x.Method() != "POST" {
		send(x, problem(405, "Method Not Allowed", "report outcomes with POST"))
		return
	}
	result, a := h.answerReport(x)
	h.outcomes.WithLabelValues(result).Inc()
	send(x, a)
}

// answerReport acts on a report. It returns the result for the metrics, and the response.
func (h *Handler) answerReport(x *http1.Exchange) (result string, a respond.Response) {
	r, err := readReport(x)
	if err == nil {
		err = h.settle(context.Background(), r)
	}
	switch result = resultOf(err); result {
	case "settled":
		return result, respond.Static(204, "", "", nil)
	case "invalid":
		return result, problem(400, "Bad Request", err.Error())
	case "forged":
		return result, problem(403, "Forbidden", err.Error())
	case "repeated":
		return result, problem(409, "Conflict", err.Error())
	case "expired":
		return result, problem(410, "Gone", err.Error())
	}
	a = problem(503, "Service Unavailable", "the store cannot be reached; report again")
	a.Fields = append(a.Fields, respond.Field{Name: "Retry-After", Value: "1"})
	return result, a
}

// settle acts on a report, for each descriptor of a call. If that fails for one, r may be repeated: the others
// are not settled twice.
func (h *Handler) settle(ctx context.Context, r report) error {
	pendings, err := h.signer.open(r.Handle, time.Now())
	if err != nil {
		return err
	}
	var failed, repeated error
	settled := false
	for _, pending := range pendings {
		err := h.proxy.Settle(ctx, proxy.OutcomeReport{Pending: pending, Status: r.Status, Refund: r.refund, Cost: r.cost, Less: r.less, Valid: h.config.WithinOutcome})
		switch {
		case err == nil:
			settled = true
		case errors.Is(err, proxy.ErrSettled):
			repeated = err
		default:
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil || settled {
		return failed
	}
	return repeated
}

// resultOf returns the result of settling for the metrics.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "settled"
	case errors.Is(err, errReport):
		return "invalid"
	case errors.Is(err, errForged):
		return "forged"
	case errors.Is(err, proxy.ErrSettled):
		return "repeated"
	case errors.Is(err, errExpired), errors.Is(err, proxy.ErrNotPending):
		return "expired"
	}
	return "failed"
}

func isStatus(n int) bool { return n >= 100 && n <= 599 }

// readReport reads a report from the query or from the body.
func readReport(x *http1.Exchange) (r report, err error) {
	query, _ := x.RawQuery()
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, errReport
	}
	if values.Has("handle") {
		r.Handle = values.Get("handle")
		r.Status, err = strconv.Atoi(values.Get("status"))
	} else if b := x.Body(); b != nil && strings.HasPrefix(strings.Join(x.Fields.Values("Content-Type"), ","), "application/json") {
		b.Limit(maxReport)
		var text []byte
		if text, err = io.ReadAll(b); err == nil {
			err = json.Unmarshal(text, &r)
		}
	}
	if err != nil || r.Handle == "" || !isStatus(r.Status) {
		return r, errReport
	}
	return r, nil
}
