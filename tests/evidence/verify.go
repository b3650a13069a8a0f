// Verifies proofs with golang.org/x/mod/sumdb, which Go itself trusts its modules to: a case is a
// line of JSON (see cases.py), and the answer to it a line: "ok", or what is wrong.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type proofCase struct {
	Entry, Proof, Vkey, Old, New string
	Hashes                       []string
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var c proofCase
		err = json.Unmarshal(line, &c)
		if err == nil && c.Proof != "" {
			err = checkInclusion(c)
		} else if err == nil {
			err = checkConsistency(c)
		}
		if err != nil {
			fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}

func checkInclusion(c proofCase) error {
	entry, err := base64.StdEncoding.DecodeString(c.Entry)
	if err != nil {
		return err
	}
	head, signed, found := strings.Cut(c.Proof, "\n\n")
	lines := strings.Split(head, "\n")
	if !found || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" {
		return errors.New("not a tlog-proof")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
	if err != nil {
		return err
	}
	hashes, err := parseHashes(lines[2:])
	if err != nil {
		return err
	}
	size, root, err := openCheckpoint(signed, c.Vkey)
	if err != nil {
		return err
	}
	if index >= size {
		return errors.New("no such leaf")
	}
	return tlog.CheckRecord(hashes, size, root, index, tlog.RecordHash(entry))
}

func checkConsistency(c proofCase) error {
	hashes, err := parseHashes(c.Hashes)
	if err != nil {
		return err
	}
	oldSize, oldRoot, err := openCheckpoint(c.Old, c.Vkey)
	if err != nil {
		return err
	}
	newSize, newRoot, err := openCheckpoint(c.New, c.Vkey)
	if err != nil {
		return err
	}
	return tlog.CheckTree(hashes, newSize, newRoot, oldSize, oldRoot)
}

// openCheckpoint returns what a checkpoint says that the key signed.
func openCheckpoint(signed, vkey string) (int64, tlog.Hash, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(verifier))
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() {
		return 0, tlog.Hash{}, errors.New("not a checkpoint of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return 0, tlog.Hash{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return size, root, err
}

func parseHashes(lines []string) ([]tlog.Hash, error) {
	var hashes []tlog.Hash
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}
