package http1

import "errors"

// errStale says that a kept connection was found to have ended, or to have brought
// something that nobody asked for, before any of the request was sent over it.
var errStale = errors.New("connection no longer fit")

// An asking sends a request over a kept connection and reads the beginning of its
// answer, with a system call less than doing one after the other: the read that the
// runtime begins every wait with comes before the request instead of after it, and
// so is the look whether the connection is fit as well.
type asking struct {
	request, answer []byte // what is sent, and where is read to

	stage  askingStage
	wrote  int // bytes of the request
	read   int // bytes of the answer
	err    error
	failed string // the system call that has failed with err
}

type askingStage uint8

const (
	silent   askingStage = iota // nothing was done yet, or nothing has come unasked
	stale                       // something has: nothing was sent
	partly                      // not all of the request was taken
	awaiting                    // for the answer
	over                        // read or err say how
)

// ask sends the request of c over u, which was used before, and reads the beginning
// of the answer into c.in. sent is how much of the request was; if that is all, there
// is an answer.
func (c *Call) ask(u *upstream) (sent int, fault *Fault) {
	c.in.open()
	a := &u.asking
	*a = asking{request: c.out.buf, answer: c.in.buf[c.in.w:]}
	err := u.raw.Read(u.step) // made once, or it would be an allocation
	a.request, a.answer = nil, nil
	switch {
	case err == nil && a.stage == stale:
		return 0, &Fault{Phase: Dialling, Err: errStale, Reused: true}
	case err == nil && a.stage == partly:
		return a.wrote, nil
	case err == nil && a.failed != "":
		err = failure(u.net, a.failed, a.err)
	case err == nil:
		err = a.err
	default:
		err = unraw(err)
	}
	if err != nil {
		f := c.fault(err)
		f.Wrote = a.wrote > 0
		return a.wrote, f
	}
	c.in.w += a.read
	return a.wrote, nil
}
