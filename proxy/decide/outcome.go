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
}

// errReport reports that a report cannot be read.
var errReport = errors.New(`write ?handle=HANDLE&status=STATUS, or {"handle": "HANDLE", "status": STATUS} with Content-Type: application/json`)

// serveOutcome answers a report: 204 if the outcome was acted upon.
func (h *Handler) serveOutcome(x *http1.Exchange) {
	if x.Method() != "POST" {
		send(x, problem(405, "Method Not Allowed", "report outcomes with POST"))
		return
	}
	result, a := h.settle(x)
	h.outcomes.WithLabelValues(result).Inc()
	send(x, a)
}

// settle acts on a report. It returns the result for the metrics, and the response.
func (h *Handler) settle(x *http1.Exchange) (result string, a respond.Response) {
	r, err := readReport(x)
	var pending []byte
	if err == nil {
		pending, err = h.signer.open(r.Handle, time.Now())
	}
	if err == nil {
		err = h.proxy.Settle(context.Background(), proxy.OutcomeReport{Pending: pending, Status: r.Status, Valid: h.config.WithinOutcome})
	}
	switch {
	case err == nil:
		return "settled", respond.Static(204, "", "", nil)
	case errors.Is(err, errReport):
		return "invalid", problem(400, "Bad Request", err.Error())
	case errors.Is(err, errForged):
		return "forged", problem(403, "Forbidden", err.Error())
	case errors.Is(err, proxy.ErrSettled):
		return "repeated", problem(409, "Conflict", err.Error())
	case errors.Is(err, errExpired), errors.Is(err, proxy.ErrNotPending):
		return "expired", problem(410, "Gone", err.Error())
	}
	a = problem(503, "Service Unavailable", "the store cannot be reached; report again")
	a.Fields = append(a.Fields, respond.Field{Name: "Retry-After", Value: "1"})
	return "failed", a
}

// resultOf returns the result of settling for the metrics.
func resultOf(err error) string {
	switch {
	case err == nil:
		return "settled"
	case errors.Is(err, errForged):
		return "forged"
	case errors.Is(err, proxy.ErrSettled):
		return "repeated"
	case errors.Is(err, errExpired), errors.Is(err, proxy.ErrNotPending):
		return "expired"
	}
	return "failed"
}

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
	if err != nil || r.Handle == "" || r.Status < 100 || r.Status > 599 {
		return r, errReport
	}
	return r, nil
}
