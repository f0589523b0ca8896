package respond

import "time"

// A Kind is a reason why Weir answers by itself.
type Kind uint8

// The kinds there are.
const (
	Internal         Kind = iota // 500: a fault of ours
	BadRequest                   // 400: not HTTP as it should be
	KeyMissing                   // 400: the request does not carry a key that its route counts by
	KeyInvalid                   // 400: the key is there, but ambiguous or not what it should be
	NotFound                     // 404: no route matches
	MethodNotAllowed             // 405: a route matches, but not with this method; see NotAllowed
	RequestTimeout               // 408: the client was too slow
	BodyTooLarge                 // 413
	TargetTooLong                // 414
	Misdirected                  // 421: the host is not served here
	HeaderTooLarge               // 431
	ClientGone                   // 499: the client left; for the log only
	NotImplemented               // 501
	BadGateway                   // 502: the upstream could not be reached or answered nonsense
	StoreUnavailable             // 503: it could not be decided whether the request may pass; see Unavailable
	NoUpstream                   // 503: no target of the upstream is fit to be asked
	Draining                     // 503: this proxy is about to stop
	GatewayTimeout               // 504: the upstream did not answer in time
	Loop                         // 508: the request has been here before
)

// Status is the status of the answers of kind k.
func (k Kind) Status() int { return 500 }

// Of is the kind of problem that err is.
func Of(err error) Kind { return Internal }

// Problem is the answer to a request that Weir cannot or will not forward.
// Detail is for the client to read and may be empty; so may requestID.
func Problem(kind Kind, detail, requestID string) Answer { return Answer{Status: kind.Status()} }

// NotAllowed is a 405 that lists the methods which would be allowed.
func NotAllowed(allow []string, requestID string) Answer { return Problem(MethodNotAllowed, "", requestID) }

// Unavailable is a Problem of kind StoreUnavailable, NoUpstream or Draining
// with a Retry-After of retry, rounded up to whole seconds.
func Unavailable(kind Kind, retry time.Duration, detail, requestID string) Answer {
	return Problem(kind, detail, requestID)
}
