// Publishes the messages of its standard input with aeron-go: each is a length (uint32, little-endian) and its bytes.
//
// Usage: publisher AERON_DIR CHANNEL STREAM_ID. It waits for a subscriber, publishes all messages in their order, and
// prints their number. A wait that exceeds its limit ends the program with an error.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/lirm/aeron-go/aeron"
	"github.com/lirm/aeron-go/aeron/atomic"
)

const (
	timeout = 60 * time.Second // for a subscriber, and for room in the term buffer
	pause   = time.Millisecond
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: publisher AERON_DIR CHANNEL STREAM_ID")
	}
	streamID, err := strconv.ParseInt(os.Args[3], 10, 32)
	if err != nil {
		log.Fatalf("the stream id %q is not a number of 32 bits", os.Args[3])
	}
	count, err := publish(os.Args[1], os.Args[2], int32(streamID))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(count)
}

func publish(aeronDir, channel string, streamID int32) (count int, err error) {
	client, err := aeron.Connect(aeron.NewContext().AeronDir(aeronDir))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	publication, err := client.AddPublication(channel, streamID)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publication.Close()) }()
	input := bufio.NewReader(os.Stdin)
	for {
		message, err := readMessage(input)
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return count, err
		}
		if err := offer(publication, message); err != nil {
			return count, fmt.Errorf("message %d: %w", count, err)
		}
		count++
	}
}

// readMessage returns io.EOF at the end of the input, and io.ErrUnexpectedEOF inside a message.
func readMessage(input io.Reader) ([]byte, error) {
	var length uint32
	if err := binary.Read(input, binary.LittleEndian, &length); err != nil {
		return nil, err
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(input, message); err != nil {
		return nil, fmt.Errorf("a message of %d bytes: %w", length, io.ErrUnexpectedEOF)
	}
	return message, nil
}

func offer(publication *aeron.Publication, message []byte) error {
	buffer := atomic.MakeBuffer(message, len(message))
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		result := publication.Offer(buffer, 0, int32(len(message)), nil)
		switch {
		case result >= 0:
			return nil
		case result != aeron.NotConnected && result != aeron.BackPressured && result != aeron.AdminAction:
			return fmt.Errorf("the offer failed with %d", result)
		case time.Now().After(deadline):
			return fmt.Errorf("the offer still returned %d after %v", result, timeout)
		}
	}
}
