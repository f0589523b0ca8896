package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A tokenHash is the hash of a token, with its operator.
type tokenHash struct {
	hash [sha256.Size]byte
	Operator
}

// tokenHashes returns those of all tokens. If there are none, programs on this machine need no
// token.
func (o Options) tokenHashes() []tokenHash {
	var all []tokenHash
	if o.Token != "" {
		all = append(all, tokenHash{sha256.Sum256([]byte(o.Token)), Operator{Name: Admin, Role: Write}})
	}
	for _, t := range o.Tokens {
		all = append(all, tokenHash{sha256.Sum256([]byte(t.Text)), Operator{Name: t.Name, Role: t.Role}})
	}
	return all
}

// Guarded reports whether a token is required.
func (o Options) Guarded() bool { return len(o.tokenHashes()) > 0 }

// Authenticate returns the result of authenticating the token that was sent with r. An empty token is
// unknown, and is not counted as a wrong one.
func (o Options) Authenticate(r *http.Request, token string) Attempt {
	return o.authenticate(o.tokenHashes(), r, token)
}

func (o Options) authenticate(all []tokenHash, r *http.Request, token string) Attempt {
	if token == "" {
		return Attempt{}
	}
	return o.WrongTokens.compare(all, token, r.RemoteAddr, time.Now())
}

// SetRetryAfter sets Retry-After to the seconds that a has to wait, rounded up.
func (a Attempt) SetRetryAfter(h http.Header) {
	h.Set("Retry-After", strconv.FormatInt(int64((a.Wait+time.Second-1)/time.Second), 10))
}

// operatorOf returns the operator of a token. It takes the same time for all tokens, valid or not.
func operatorOf(all []tokenHash, token string) (o Operator, known bool) {
	got := sha256.Sum256([]byte(token))
	for _, a := range all {
		if subtle.ConstantTimeCompare(got[:], a.hash[:]) == 1 {
			o, known = a.Operator, true
		}
	}
	return o, known
}

// requireRole returns a middleware that requires a token of an operator with that role; without
// configured tokens it allows all requests. The next handler finds the operator by OperatorOf.
func (o Options) requireRole(role Role) func(http.Handler) http.Handler {
	all := o.tokenHashes()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := Operator{Name: Local, Role: Write}
			if len(all) > 0 {
				token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
				if !found {
					token = ""
				}
				a := o.authenticate(all, r, token)
				switch {
				case a.Wait > 0:
					a.SetRetryAfter(w.Header())
					problem(w, http.StatusTooManyRequests, "too many wrong tokens from this address; try again later")
					return
				case !a.Known:
					w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
					problem(w, http.StatusUnauthorized, "send the admin token as Authorization: Bearer TOKEN")
					return
				}
				who = a.Operator
			}
			if role == Write && who.Role != Write {
				problem(w, http.StatusForbidden, "the token of "+who.Name+" may only read; use one with role: write")
				return
			}
			who.Address = r.RemoteAddr
			next.ServeHTTP(w, r.WithContext(WithOperator(r.Context(), who)))
		})
	}
}
