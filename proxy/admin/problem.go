package admin

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// A Problem is why the API does not do what it is asked: a problem document (RFC
// 9457). The API answers operators, so it may tell them all it knows. It is an error
// on both sides: a server's function returns one to choose the status and the facts,
// and a Client returns the one that was answered.
type Problem struct {
	Author   string       `json:"author,omitempty"` // of the push that is in progress
	Detail   string       `json:"detail"`
	Node     string       `json:"node,omitempty"`     // through which that push goes
	Nodes    []NodeAnswer `json:"nodes,omitempty"`    // what each node said of a push
	Problems []string     `json:"problems,omitempty"` // all that is wrong with a configuration
	Status   int          `json:"status"`
	Title    string       `json:"title"`
	Type     string       `json:"type"`
}

// Error is what it says to people.
func (p *Problem) Error() string { return p.Detail }

// send answers with p, whose Status and Detail are set.
func (p Problem) send(w http.ResponseWriter) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	reply(w, p.Status, "application/problem+json", p)
}

// problem answers with a status and a sentence.
func problem(w http.ResponseWriter, status int, detail string) {
	Problem{Status: status, Detail: detail}.send(w)
}

// refused is the problem with a configuration.
func refused(problems config.Problems) Problem {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return Problem{Status: http.StatusUnprocessableEntity, Detail: lines[0], Problems: lines}
}

// problemOf is what is answered to an error of ours; other is its status when nothing
// more is known of it.
func problemOf(err error, other int) Problem {
	var problems config.Problems
	var known *Problem
	switch {
	case errors.As(err, &problems):
		return refused(problems)
	case errors.Is(err, config.ErrBundle):
		return Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.As(err, &known):
		return *known
	case errors.Is(err, proxy.ErrKeyQuery), errors.Is(err, proxy.ErrExplain):
		return Problem{Status: http.StatusBadRequest, Detail: unprefixed(err)}
	}
	return Problem{Status: other, Detail: err.Error()}
}

// unprefixed is what is wrong with a question, without the words that it is.
func unprefixed(err error) string {
	text := err.Error()
	for _, kind := range []error{proxy.ErrKeyQuery, proxy.ErrExplain} {
		text = strings.TrimPrefix(text, kind.Error()+": ")
	}
	return text
}

// answer sends what ask returns, or why it cannot; then its status is other unless the
// error says another.
func answer[T any](w http.ResponseWriter, other int, ask func() (T, error)) {
	v, err := ask()
	if err != nil {
		problemOf(err, other).send(w)
		return
	}
	reply(w, http.StatusOK, "application/json", v)
}
