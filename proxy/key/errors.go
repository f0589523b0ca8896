package key

import "errors"

// What can be wrong with a key. Errors that wrap these name the key, never its
// value. Only ErrMissing and ErrInvalid are subject to what a Spec says of them.
var (
	// ErrSpec reports that a text in the configuration does not describe a key.
	ErrSpec = errors.New("not a key")
	// ErrMissing reports that a request does not carry a key that it must
	// carry.
	ErrMissing = errors.New("key missing")
	// ErrInvalid reports that a request carries a key that is not what it claims
	// to be: no phone number, no JSON, a token that nobody signed.
	ErrInvalid = errors.New("key not valid")
	// ErrAmbiguous reports that servers would not all read the same key in a
	// request: it is there more than once, or in a form of which they make
	// different things. Which one the upstream would believe is not known, so none
	// is.
	ErrAmbiguous = errors.New("key can be read in more than one way")
	// ErrMismatch reports that two places of a request which must carry the
	// same key do not.
	ErrMismatch = errors.New("key differs from its other copy")
	// ErrBodyTooLarge reports that a body is longer than may be read for a key.
	// It comes from Message.Body.
	ErrBodyTooLarge = errors.New("body too large for its key to be read")
	// ErrNoKeys reports that no keys are known to verify tokens with, because
	// the place they come from has not answered yet: the fault is not the
	// client's.
	ErrNoVerificationKeys = errors.New("no keys to verify tokens with")
)
