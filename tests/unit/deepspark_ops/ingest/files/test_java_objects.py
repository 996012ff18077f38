"""Objects written by Java 17's ObjectOutputStream, as hexadecimal digits, are read; other objects are refused."""

import pytest

from deepspark_ops.ingest.files.java_objects import parse_java_object

WRITTEN = {
    "pair": (
        "aced00057372001a636f6d2e7961686f6f2e6d6c2e646c2e63616666652e50616972674440f0533c10ca0200024c00056669"
        "7273747400124c6a6176612f6c616e672f4f626a6563743b4c00067365636f6e6471007e00017870740009696d672f612e6a"
        "706774000137"
    ),
    "many": (
        "aced0005737200064d244d616e79f186d8fff131ae450200054a00036269674900016e5a00037965734c0005616761696e74"
        "00124c6a6176612f6c616e672f537472696e673b4c00046e6f6e657400124c6a6176612f6c616e672f4f626a6563743b7872"
        "00064d2442617365b04a8ee694cb19a10200024400067765696768744c00046e6f746571007e000178703fe0000000000000"
        "74000373c3a90000010000000000fffffffd0171007e000570"
    ),
    "int": (
        "aced0005737200116a6176612e6c616e672e496e746567657212e2a0a4f781873802000149000576616c7565787200106a61"
        "76612e6c616e672e4e756d62657286ac951d0b94e08b020000787000000005"
    ),
    "text": ("aced0005740005706c61696e"),
    "list": (
        "aced0005737200136a6176612e7574696c2e41727261794c6973747881d21d99c7619d03000149000473697a657870000000"
        "017704000000017400017178"
    ),
    "array": ("aced0005757200025b494dba602676eab2a50200007870000000020000000100000002"),
}
"""pair: com.yahoo.ml.dl.caffe.Pair, whose public fields are first and second; many: a class with a superclass,
primitive fields, a null and a text that two fields share."""


def parsed_object(name: str):
    return parse_java_object(bytes.fromhex(WRITTEN[name]))


def test_a_pair_of_caffeonspark_is_its_two_texts():
    assert parsed_object("pair") == ["img/a.jpg", "7"]


def test_fields_of_all_kinds_come_by_name_those_of_the_superclass_too():
    # again, big, n, none, note, weight, yes
    assert parsed_object("many") == ["s\u00e9", 2**40, -3, None, "s\u00e9", 0.5, True]


def test_texts_and_boxed_numbers_are_themselves():
    assert (parsed_object("text"), parsed_object("int")) == ("plain", 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("list", "holds a java.util.ArrayList, which writes itself"),
        ("array", "has a part of kind 0x75; a tuple of plain values has none"),
    ],
)
def test_other_objects_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        parsed_object(name)


def test_no_object_and_a_cut_one_are_refused():
    with pytest.raises(ValueError, match="not an object that Java serialized"):
        parse_java_object(b"\xac\xed\x00\x06")
    object_bytes = bytes.fromhex(WRITTEN["many"])
    for length in range(4, len(object_bytes)):
        with pytest.raises(ValueError, match="Java serialized"):
            parse_java_object(object_bytes[:length])
