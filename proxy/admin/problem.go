package admin

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// A Problem is an error response of the API: a problem document (RFC 9457). The API serves
// operators, so it may contain all details. It is an error on both sides: functions of a server
// return one to choose the status and the details, and a Client returns the one it received.
type Problem struct {
	Author   string       `json:"author,omitempty"` // author of the push in progress
	Detail   string       `json:"detail"`
	Node     string       `json:"node,omitempty"`     // node of the push in progress
	Nodes    []NodeAnswer `json:"nodes,omitempty"`    // answers of the nodes to a push
	Problems []string     `json:"problems,omitempty"` // all problems of a configuration
	Status   int          `json:"status"`
	Title    string       `json:"title"`
	Type     string       `json:"type"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// send responds with p, whose Status and Detail must be set.
func (p Problem) send(w http.ResponseWriter) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	reply(w, p.Status, "application/problem+json", p)
}

// problem responds with a status and a detail.
func problem(w http.ResponseWriter, status int, detail string) {
	Problem{Status: status, Detail: detail}.send(w)
}

// configProblem returns the problem for an invalid configuration.
func configProblem(problems config.Problems) Problem {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return Problem{Status: http.StatusUnprocessableEntity, Detail: lines[0], Problems: lines}
}

// problemOf converts an error to a Problem; other is the status of an unknown error.
func problemOf(err error, other int) Problem {
	var problems config.Problems
	var known *Problem
	switch {
	case errors.As(err, &problems):
		return configProblem(problems)
	case errors.Is(err, bundle.ErrInvalid):
		return Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.As(err, &known):
		return *known
	case errors.Is(err, proxy.ErrKeyQuery), errors.Is(err, proxy.ErrExplain):
		return Problem{Status: http.StatusBadRequest, Detail: unprefixed(err)}
	}
	return Problem{Status: other, Detail: proxy.ErrorText(err)}
}

// unprefixed returns the message of a query error without its general prefix.
func unprefixed(err error) string {
	text := err.Error()
	for _, kind := range []error{proxy.ErrKeyQuery, proxy.ErrExplain} {
		text = strings.TrimPrefix(text, kind.Error()+": ")
	}
	return text
}

// respond responds with the result of ask, or with its error. The status of an unknown error is
// other.
func respond[T any](w http.ResponseWriter, other int, ask func() (T, error)) {
	v, err := ask()
	if err != nil {
		problemOf(err, other).send(w)
		return
	}
	reply(w, http.StatusOK, "application/json", v)
}
