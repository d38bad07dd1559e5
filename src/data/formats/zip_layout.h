/*
 * zip_layout - where the fields of the zip records lie, for npz.c and npz_writer.c.
 *
 * Record:           fixed bytes, then name, then extra fields
 *   local header    30   before each member's data
 *   central entry   46   one a member, together the directory
 *   zip64 end       56   the directory's place in 64 bits, found through ...
 *   zip64 locator   20   ... this, just before ...
 *   end             22   ... the last record, followed by a comment
 */
#ifndef DATA_FORMATS_ZIP_LAYOUT_H
#define DATA_FORMATS_ZIP_LAYOUT_H

#define ZIP_LOCAL_SIGNATURE 0x04034b50u
#define ZIP_CENTRAL_SIGNATURE 0x02014b50u
#define ZIP_END_SIGNATURE 0x06054b50u
#define ZIP64_END_SIGNATURE 0x06064b50u
#define ZIP64_LOCATOR_SIGNATURE 0x07064b50u

#define ZIP_LOCAL_BYTES 30
#define ZIP_CENTRAL_BYTES 46
#define ZIP_END_BYTES 22
#define ZIP64_END_BYTES 56
#define ZIP64_LOCATOR_BYTES 20
#define ZIP_MAX_COMMENT_BYTES 65535

#define ZIP64_EXTRA_ID 1
#define ZIP_SEE_ZIP64_16 0xFFFFu     // in a 16-bit field: look in the zip64 record
#define ZIP_SEE_ZIP64_32 0xFFFFFFFFu // in a 32-bit field: look in the zip64 extra field

#define ZIP_METHOD_STORED 0
#define ZIP_METHOD_DEFLATED 8
#define ZIP_VERSION_ZIP64 45

#endif
